"""What the tests of several packages need: a cluster's API server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_server.cluster_server import ClusterServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ClusterServer]:
    """The simulated API server over TLS, with nothing in it."""
    with ClusterServer(tmp_path / "api") as found:
        yield found
