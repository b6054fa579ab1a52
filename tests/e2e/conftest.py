"""What tests of the install and tests on a cluster have in common."""

from collections.abc import Generator

import pytest

from support.cluster import install
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


@pytest.fixture(scope="session")
def install_programs() -> None:
    """Skips where the programs that judge the install cannot be had."""
    if why_not := install.missing():
        pytest.skip(why_not)
