"""`mpsRoot` on a node of real parts: the mount of a pipe directory goes through a link."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.node.real import MARKS, RealNode, example, example_config, running_node
from support.node.slices import assert_slice_holds
from support.waiting import wait_until

ROOT, OTHER_ROOT = "/run/nvidia/mps", "/run/elsewhere"
POD, NEXT_POD = "mps-half", "mps-quarter"

pytestmark = MARKS


def config(root: str) -> dict[str, Any]:
    found = example_config()
    return found | {"flags": found["flags"] | {"mpsRoot": root}}


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    with running_node(config(ROOT), ("a100-80g", "a100-80g")) as node:
        node.put(example(POD))
        yield node


def daemons_home(node: RealNode) -> str:
    uuid = node.machine.devices[0].uuid
    return str(node.inside(f"/run/vgpu/mps/{uuid}").readlink().parent)


def test_a_container_reaches_a_daemon_below_the_root(node: RealNode) -> None:
    assert_slice_holds(node, POD)
    assert daemons_home(node) == ROOT
    uuid = node.machine.devices[0].uuid
    assert node.inside(f"{ROOT}/{uuid}/pipe/control").is_socket()
    assert f"its pipe and logs are in {ROOT}/{uuid}" in node.vgpuctl("doctor")


def test_a_container_restarts_where_its_daemon_is_though_the_root_has_changed(
    node: RealNode,
) -> None:
    node.change_config(config(OTHER_ROOT))
    log = node.base / "mps.log"
    wait_until(lambda: "stays where it is" in log.read_text(), "the runner knows the root")
    restarts = node.restarts(POD)
    node.end_container(POD)
    node.wait_restarted(restarts)
    assert_slice_holds(node, POD)
    assert daemons_home(node) == ROOT


def test_the_daemon_moves_when_the_pod_has_ended(node: RealNode) -> None:
    node.delete(POD)
    wait_until(lambda: daemons_home(node) == OTHER_ROOT, "the daemon has moved")
    node.put(example(NEXT_POD))
    assert_slice_holds(node, NEXT_POD)
