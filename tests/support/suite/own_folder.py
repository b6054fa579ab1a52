"""A run's temporary files lie in a folder of its own (a pytest plugin), in memory if that can be.

pytest's usual one is shared by all runs of a user, and each run that begins closes it to other
users: in the midst of a test of ours that has let them in (`support.open_to_others`). On a disk
each simulated machine and each slice that is made or removed waits for the disk's journal. What
failed keeps its files.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

#: What a run needs in memory; its files take a few hundred MiB at a time.
ROOM_BYTES = 2 << 30
_MEMORY = Path("/dev/shm")
_FOLDER = pytest.StashKey[Path]()


def _is_fit(folder: Path) -> bool:
    """Whether there is room, and programs may be run from there (not in Docker, by default)."""
    try:
        about = os.statvfs(folder)
    except OSError:
        return False
    has_room = about.f_bavail * about.f_frsize >= ROOM_BYTES
    return has_room and not about.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


#: Where folders with a short path are made, as the paths of sockets must be.
SHORT = str(_MEMORY if _is_fit(_MEMORY) else "/tmp")


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short path, whatever the test is called: a socket's has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir=SHORT) as name:
        yield Path(name)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder, before pytest looks where to put its files; workers get a part of it."""
    if config.option.basetemp:
        return
    # A real node has a /dev/shm of its own, in which it would not find what its test made.
    folder = "/tmp" if config.option.markexpr.startswith("node") else SHORT
    config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="vgpu-tests-", dir=folder))
    config.option.basetemp = str(config.stash[_FOLDER] / "run")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Removes it after a run without failures."""
    folder = session.config.stash.get(_FOLDER, None)
    if folder is not None and exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        shutil.rmtree(folder, ignore_errors=True)
