"""What node agents publish, whoever wrote it: nodes are looked at, pods planned, nothing fails."""

import contextlib
import json

from msgspec import inspect

from deviceplugin.pages import slices
from deviceplugin.pages.published import FORM, PublishedNode, decode, encode
from deviceplugin.scheduler.answers.extender import Extender
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.policies import Policies
from fuzz.shapes import Shapes, words_of
from libvgpu.errors import VgpuError
from support.scheduler.values import DOMAIN, asking, pod_of

_NODE, _PAGE = inspect.type_info(PublishedNode), inspect.type_info(slices.NodeSlices)
_WORDS = [*dict.fromkeys(words_of(_NODE)), DOMAIN, "vgpu", "mps", "binpack", "spread", "GPU-0",
          "GPU-1", f"{DOMAIN}/gpu", "team", "a"]  # fmt: skip
_PODS = (
    pod_of("new", 50, 8),
    pod_of("one", 100, 0),
    pod_of("two", 0, 0, containers=[asking("m", {"vgpu-core": 200}), asking("n", {"gpu": 1})]),
    pod_of("mps", 0, 0, containers=[asking("m", {"mps-core": 10, "mps-memory": 1})] * 3),
)


def one(data: bytes) -> None:
    """Reads one annotation, or one page of an agent."""
    shapes = Shapes(data)
    how = shapes.byte()
    if how & 3 == 3:
        page = {"version": shapes.pick((1, 2, 3, slices.VERSION)), **_dict(shapes)}
        with contextlib.suppress(VgpuError):
            slices.read_page(shapes.rest() if how & 4 else json.dumps(page).encode())
        return
    content = shapes.like(_NODE, _WORDS)
    if isinstance(content, dict) and how & 8:
        content |= {"form": FORM, "domain": DOMAIN}
    text = shapes.rest().decode("utf-8", "replace") if how & 4 else json.dumps(content)
    node = decode(text)
    if node is None:
        return
    assert decode(encode(node)) == node
    _plan(node)


def _dict(shapes: Shapes) -> dict[str, object]:
    found = shapes.like(_PAGE, _WORDS)
    return {k: v for k, v in found.items() if k != "version"} if isinstance(found, dict) else {}


def _plan(node: PublishedNode) -> None:
    policies = Policies(DOMAIN)
    cluster = Cluster(policies.plan)
    cluster.set_nodes({"n1": node})
    cluster.set_pod(pod_of("a", 10, 1, "n1"))
    extender = Extender(cluster, policies, lambda: (), lambda: "")
    for pod in _PODS:
        found = extender.verdicts(pod, ["n1"]).get("n1")
        assert not isinstance(found, int) or 0 <= found <= 10
        seen = cluster.view("n1")
        assert seen is not None
        policies.plan(seen[1], pod)
