"""A bad config file over a restart of agent and MPS daemons: pods go on (`make e2e-node`)."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.node.real import MARKS, RealNode, example, example_config, running_node
from support.node.slices import GIB, assert_slice_holds
from support.waiting import wait_until

PODS = ("vgpu-30", "mps-half")
GPUS = ("a100-80g", "a100-80g")
#: 1 where what the config file says is in force, else 0.
ACCEPTED = "vgpu_config_reload_success"

pytestmark = MARKS


def agent_config(**rule: Any) -> dict[str, Any]:
    """The examples' config with one rule for all containers."""
    return example_config() | {"limits": [{"match": {"container": "*"}, **rule}]}


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    """A node whose agent has started again over a bad config, with pods from before."""
    with running_node(agent_config(core="100%"), GPUS) as node:
        for name in PODS:
            node.put(example(name))
            assert_slice_holds(node, name)
        assert node.metric(ACCEPTED) == 1
        node.kill("agent")
        node.change_config(agent_config(core="much"))
        node.start_agent()
        yield node


def test_containers_restart_and_mps_daemons_with_them(node: RealNode) -> None:
    assert node.metric(ACCEPTED) == 0
    restarts = node.restarts(*PODS)

    node.stop("mps")  # and its clients
    node.start_mps()
    node.end_container("vgpu-30")

    node.wait_restarted(restarts)
    for name in PODS:
        assert_slice_holds(node, name)


@pytest.mark.parametrize("name", ["vgpu-70", "mps-quarter"])
def test_a_new_pod_starts_under_the_config_of_before(node: RealNode, name: str) -> None:
    node.put(example(name))

    assert_slice_holds(node, name)


def test_a_repaired_config_holds_in_the_running_container(node: RealNode) -> None:
    rounds = sum(line["phase"] == "view" for line in node.said("vgpu-30"))

    node.change_config(agent_config(memory="8Gi"))

    assert_slice_holds(node, "vgpu-30", rounds, 8 * GIB)
    wait_until(lambda: node.metric(ACCEPTED) == 1, "what the file says is in force")
