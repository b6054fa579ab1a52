"""What tests on a cluster have in common, whichever folder or file they are in."""

from collections.abc import Generator

import pytest

from support.cluster import logs as cluster_logs
from support.cluster.real import RealCluster


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Keeps what all parts said where a test fails."""
    cluster = pyfuncitem.funcargs.get("cluster")
    if not isinstance(cluster, RealCluster):
        return (yield)
    with cluster_logs.kept_on_failure(cluster, pyfuncitem.name):
        return (yield)
