"""A run's temporary files lie in a folder of its own (a pytest plugin).

pytest's usual one is shared by all runs of a user, and each run that begins closes it to other
users: in the midst of a test of ours that has let them in (`support.open_to_others`). What failed
keeps its files.
"""

import shutil
import tempfile
from pathlib import Path

import pytest

_FOLDER = pytest.StashKey[Path]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Makes the folder, before pytest looks where to put its files; workers get a part of it."""
    if config.option.basetemp:
        return
    config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="vgpu-tests-", dir="/tmp"))
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
