"""`vgpuctl doctor` on a node of real parts: what is well, and what is not (`make e2e-node`)."""

from collections.abc import Iterator

import pytest

from support.node.doctor import Finding, of
from support.node.real import MARKS, RealNode, example, example_config, running_node
from support.node.slices import assert_slice_holds
from support.output_schemas import check

POD = "vgpu-30"
RUNTIME = "/etc/containerd/config.toml"

pytestmark = MARKS


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    with running_node(example_config(), ("a100-80g", "a100-80g")) as node:
        node.put(example(POD))
        assert_slice_holds(node, POD)
        yield node


def levels(found: list[Finding], *checks: str) -> dict[str, str]:
    return {name: each["level"] for name in checks for each in of(found, name)}


def test_a_good_node_has_nothing_that_fails(node: RealNode) -> None:
    found = check("doctor", node.vgpuctl("doctor", "-o", "json"))

    wanted = ("runtime", "cgroups", "images", "leftovers", "run directory", "mps", "config")
    assert levels(found, *wanted) == dict.fromkeys(wanted, "ok")
    assert "its default runtime nvidia is NVIDIA's" in of(found, "runtime")[0]["message"]
    assert "1 processes name their pod" in of(found, "cgroups")[0]["message"]
    assert {each["level"] for each in found} <= {"ok", "warn"}


def test_without_the_agent_a_runtime_that_lost_nvidias_is_told(node: RealNode) -> None:
    file = node.inside(RUNTIME)
    good = file.read_text()
    node.kill("agent")
    file.write_text("version = 2\n")
    try:
        found = check("doctor", node.vgpuctl("doctor", "-o", "json", status=1))
    finally:
        file.write_text(good)
        node.start_agent()

    assert levels(found, "agent", "runtime", "config", "images", "cgroups", "leftovers") == {
        "agent": "fail",
        "runtime": "fail",
        "config": "ok",
        "images": "ok",
        "cgroups": "ok",
        "leftovers": "ok",
    }
    assert "containers start without their GPU" in of(found, "runtime")[0]["message"]
    assert levels(check("doctor", node.vgpuctl("doctor", "-o", "json")), "runtime") == {
        "runtime": "ok"
    }
