"""KubeSpawner, which makes JupyterHub's pods, in an environment of its own below build/."""

import hashlib
import json
import os
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

from support import ROOT
from support.ended import run_to_end

SOURCE = ROOT / "tests/e2e/jupyterhub"
INSTALL_TIMEOUT_S = 600.0
_RUN_TIMEOUT_S = 120.0
#: It looks for a cluster when it starts, and asks it nothing for a pod's manifest.
_KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "nowhere",
    "contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": "nobody"}}],
    "clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "nobody", "user": {}}],
}


class NotHere(Exception):  # noqa: N818 - a reason to skip, and no error
    """The packages cannot be had now."""


def environment() -> Path:
    """Returns the environment, made if it is not there.

    Raises:
        NotHere: the registry does not give its packages, in a sentence.
    """
    required = SOURCE / "requirements.txt"
    digest = hashlib.sha256(required.read_bytes()).hexdigest()[:16]
    folder = ROOT / "build/kubespawner"
    made = folder / digest
    if not made.exists():
        shutil.rmtree(folder, ignore_errors=True)
        draft = folder / "new"
        venv.create(draft, with_pip=True)
        try:
            got = run_to_end(
                [draft / "bin/python", "-m", "pip", "install", "--quiet", "-r", str(required)],
                timeout=INSTALL_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise NotHere(f"JupyterHub did not come within {INSTALL_TIMEOUT_S:.0f} s") from None
        if got.returncode:
            raise NotHere(f"JupyterHub cannot be had: {got.stderr[-300:]}")
        draft.rename(made)
    return made


def pods(settings: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """Returns the pod that KubeSpawner makes for each profile, by what the profile is called.

    Args:
        settings: of KubeSpawner.
        folder: where something may be written.

    Raises:
        NotHere: as `environment`.
    """
    (folder / "kubeconfig").write_text(json.dumps(_KUBECONFIG))
    result = run_to_end(
        [environment() / "bin/python", str(SOURCE / "make_pods.py")],
        input=json.dumps(settings),
        timeout=_RUN_TIMEOUT_S,
        env={**os.environ, "KUBECONFIG": str(folder / "kubeconfig")},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return dict(json.loads(result.stdout))
