"""Several named configs in one ConfigMap, of which the node's label chooses."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from deviceplugin.config.chosen import Selection
from deviceplugin.kube import node_label
from libvgpu.errors import ConfigError
from support.api_server.cluster_server import ClusterServer
from support.node.in_process import CONFIG, GIB, InProcessNode, running_node
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.agent_client import agent_report
from vgpuctl.cli import cli

PAIR = {"vgpu-core": 20, "vgpu-memory": 8}
LABEL = "nvidia.com/device-plugin.config"
NODE = "test-node"


def config(limit_gib: int) -> str:
    return CONFIG + f"limits:\n- {{memory: {limit_gib}Gi}}\n"


class NamedNode(InProcessNode):
    """Its configs a, b and default limit memory to 1, 2 and 3 GiB."""

    def __init__(self, base: Path, seed: int = 1) -> None:
        super().__init__(base, seed)
        self.configs = base / "configs"
        self.configs.mkdir()
        for gib, name in enumerate(("a", "b", "default"), 1):
            (self.configs / name).write_text(config(gib))


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    server.label_node(NODE, other="x")
    return server


@pytest.fixture
def node(server: ClusterServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    server.be_found(monkeypatch)
    monkeypatch.setattr(node_label, "REFRESH_S", 0.3)
    with running_node(monkeypatch, NamedNode) as node:
        yield node


def restart(node: InProcessNode, **selection: object) -> None:
    node.stop_agent()
    node.selection = Selection(**selection)  # type: ignore[arg-type]
    node.start_agent()
    node.wait_registered()
    wait_until(lambda: node.run_dir.joinpath("agent.sock").exists())


def in_force(node: InProcessNode) -> tuple[str, str]:
    told = agent_report(node.run_dir).config
    return told.name, told.chosen_by


def test_a_changed_label_switches_the_config_of_running_containers(
    server: ClusterServer, node: InProcessNode
) -> None:
    pod = node.admit("a", PAIR)
    assert node.limit(pod).memory_limit_bytes == 3 * GIB
    assert in_force(node) == ("default", "fallback named")

    server.label_node(NODE, **{LABEL: "a"})
    wait_until(lambda: node.limit(pod).memory_limit_bytes == GIB)
    wait_until(lambda: in_force(node) == ("a", f"label {LABEL}"))
    status = CliRunner().invoke(cli, ["status", "--run-dir", str(node.run_dir), "-o", "json"])
    assert f"vgpuctl: config a, chosen by label {LABEL}" in status.stderr
    assert isinstance(json.loads(status.stdout), list)
    assert str(node.configs) + "/a" == agent_report(node.run_dir).config.path
    server.label_node(NODE, **{LABEL: "b"})
    wait_until(lambda: node.limit(pod).memory_limit_bytes == 2 * GIB)
    server.label_node(NODE)
    wait_until(lambda: node.limit(pod).memory_limit_bytes == 3 * GIB)
    server.label_node(NODE, **{"example.com/gpus": "a"})
    restart(node, node_label="example.com/gpus")
    assert in_force(node) == ("a", "label example.com/gpus")


def test_the_last_known_label_counts_while_the_server_is_away_and_over_a_restart(
    server: ClusterServer, node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    server.label_node(NODE, **{LABEL: "b"})
    wait_until(lambda: in_force(node)[0] == "b")
    wait_until(lambda: '"b"' in (node.state_dir / node_label.FILE).read_text())
    server.stop()

    restart(node)

    assert in_force(node) == ("b", f"label {LABEL}")
    wait_until(lambda: "does not answer" in agent_report(node.run_dir).config.label_problem)
    server.label_node(NODE, **{LABEL: "a"})
    server.start()
    wait_until(lambda: in_force(node)[0] == "a")
    assert agent_report(node.run_dir).config.label_problem == ""
    (node.state_dir / node_label.FILE).unlink()
    server.refuse(403)  # no RBAC, and nothing known: the fallbacks count
    restart(node)
    assert in_force(node) == ("default", "fallback named")
    assert "403" in agent_report(node.run_dir).config.label_problem


def test_an_agent_that_has_never_had_a_config_ends_where_none_is_chosen(
    server: ClusterServer, node: InProcessNode
) -> None:
    node.stop_agent()
    (node.state_dir / "accepted-config.json").unlink()
    server.label_node(NODE, **{LABEL: "nothing"})

    node.start_agent()
    node._thread.join(PATIENCE_S)  # type: ignore[union-attr]

    assert isinstance(node.failure, ConfigError)
    assert f"label {LABEL}=nothing of the node names" in str(node.failure)
    server.label_node(NODE)
    node.start_agent()
    node.wait_registered()
