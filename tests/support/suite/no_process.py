"""A test of `make quick` starts no process (a pytest plugin), unless it is marked ``process``."""

import sys
from collections.abc import Generator

import pytest

from support import ROOT

#: Folders of what `make quick` runs.
QUICK = (ROOT / "tests/unit", ROOT / "tests/model")
_STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec")
_started: list[str] = []


def _hear(event: str, given: tuple[object, ...]) -> None:
    if event in _STARTS:
        _started.append(f"{event}{given[:2]}")


def pytest_configure() -> None:
    """Listens to what Python itself tells of programs that begin."""
    sys.addaudithook(_hear)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    _started.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fails the test when all of it has been torn down."""
    result = yield
    if _started and not item.get_closest_marker("process"):
        assert not any(item.path.is_relative_to(folder) for folder in QUICK), (
            f"a quick test started a process: {_started}; mark it `process`, or move it"
        )
    return result
