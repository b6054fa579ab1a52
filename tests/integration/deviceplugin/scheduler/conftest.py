"""A small cluster, and the extender next to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.simulated_cluster.api_server import SimulatedApiServer
from support.extender_process import ExtenderProcess, extender, make_api_server, publish
from support.scheduler_values import held_slice, published


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SimulatedApiServer]:
    """An API server with two nodes of two GPUs; on the first 40 of each GPU are left."""
    found = make_api_server(tmp_path)
    found.start()
    held = [held_slice(f"s{n}", f"p{n}", 60, 10, n) for n in range(2)]
    publish(found, "n1", published(*held))
    publish(found, "n2")
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def running(server: SimulatedApiServer, tmp_path: Path) -> Iterator[ExtenderProcess]:
    with extender(server, tmp_path, "--no-leader-elect") as found:
        yield found
