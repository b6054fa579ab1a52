"""Makes the pods of JupyterHub's users with KubeSpawner itself: one for each profile.

Reads a mapping of KubeSpawner's settings as JSON from stdin, and writes a JSON list of what each
profile is called, and of its pod as the API server would get it. Runs in an environment that has
jupyterhub-kubespawner and nothing of this project.
"""

import asyncio
import json
import sys
from types import SimpleNamespace
from typing import Any

from kubernetes_asyncio.client import ApiClient
from kubespawner import KubeSpawner
from traitlets.config import Config


async def pods(settings: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns each profile's name and pod."""
    found = []
    serializer = ApiClient()
    for number in range(len(settings["profile_list"])):
        spawner = KubeSpawner(
            _mock=True,
            hub=SimpleNamespace(public_host="", url="/hub/", api_url="http://hub", base_url="/"),
            user=SimpleNamespace(name="somebody", escaped_name="somebody", id=1, url="/user"),
            config=Config({"KubeSpawner": settings}),
        )
        profiles = spawner._get_initialized_profile_list(spawner.profile_list)
        profile = profiles[number]
        spawner.user_options = {"profile": profile["slug"]}
        await spawner.load_user_options()
        pod = await spawner.get_pod_manifest()
        found.append((profile["display_name"], serializer.sanitize_for_serialization(pod)))
    await serializer.close()
    return found


print(json.dumps(asyncio.run(pods(json.load(sys.stdin)))))
