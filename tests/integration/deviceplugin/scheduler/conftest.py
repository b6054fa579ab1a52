"""A small cluster, and the extender next to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_server.cluster_server import ClusterServer
from support.scheduler.process import ExtenderProcess, extender
from support.scheduler.values import held_slice, published


@pytest.fixture
def server(server: ClusterServer) -> ClusterServer:
    """Has two nodes of two GPUs; on the first 40 of each GPU are left."""
    held = [held_slice(f"s{n}", f"p{n}", 60, 10, n) for n in range(2)]
    server.publish("n1", published(*held))
    server.publish("n2")
    return server


@pytest.fixture
def running(server: ClusterServer, tmp_path: Path) -> Iterator[ExtenderProcess]:
    with extender(server, tmp_path, "--no-leader-elect") as found:
        yield found
