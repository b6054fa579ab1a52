"""What a pod of deploy/examples asks for, and whether its container on a node has that."""

from typing import Any

from support.node.pods import NodeWithPods
from support.node.real import example

GIB = 1 << 30
OUT_OF_MEMORY = 2


def asked(pod: dict[str, Any]) -> tuple[int, int]:
    """Returns percent of a GPU and bytes that a pod asks for."""
    (container,) = pod["spec"]["containers"]
    limits = container["resources"]["limits"]
    amounts = {resource.rpartition("-")[2]: int(number) for resource, number in limits.items()}
    return amounts["core"], amounts["memory"] * GIB


def assert_slice_holds(
    node: NodeWithPods, name: str, number: int = 0, limit_bytes: int = 0
) -> None:
    """The sample client saw its slice and was refused beyond it, in its ``number``-th round."""
    limit_bytes = limit_bytes or asked(example(name))[1]
    view = node.wait_said(name, "view", number)
    memory = node.wait_said(name, "memory", number)

    seen = {key: view[key] for key in view if key.endswith("total_bytes")}
    assert seen == dict.fromkeys(
        ("cuda_total_bytes", "device_total_bytes", "nvml_total_bytes"), limit_bytes
    )
    taken = limit_bytes - memory["free_before_bytes"] + memory["granted_bytes"]
    assert limit_bytes - memory["piece_bytes"] < taken <= limit_bytes
    assert memory["refusal_code"] == OUT_OF_MEMORY
    assert memory["one_again_after_free"]
