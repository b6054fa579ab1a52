"""What the tests of several packages need: a node, and a cluster's API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_server.cluster_server import ClusterServer
from support.node.in_process import InProcessNode, running_node


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClusterServer]:
    """The simulated API server over TLS, with nothing in it."""
    with ClusterServer(tmp_path / "api") as found:
        yield found


@pytest.fixture
def in_world() -> None:
    """Has the test's `node` live in a world, in a time of its own."""


@pytest.fixture
def node(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[InProcessNode]:
    """A kubelet stand-in and an agent in this process."""
    in_world = "in_world" in request.fixturenames
    with running_node(monkeypatch, in_world=in_world) as node:
        yield node
