"""How long a daemon is asked, with a tool that never answers."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deviceplugin.mps import daemon as daemon_module
from deviceplugin.mps.control_pipe import TOOL
from deviceplugin.mps.daemon import Daemon
from deviceplugin.mps.processes import PidfdProcess
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.errors import MpsError, MpsSilentError
from support.waiting import wait_until

pytestmark = pytest.mark.process

UUID = "GPU-a"
#: Longer than any test, so that who waits out a silence is noticed.
ENDLESS_S = 1000.0


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A control tool that tells by a file that it was asked, and then is silent."""
    made = tmp_path / "bin" / TOOL
    made.parent.mkdir()
    made.write_text(
        f"#!{sys.executable}\nimport pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'asked')!r}).touch()\ntime.sleep({ENDLESS_S})\n"
    )
    made.chmod(0o755)
    monkeypatch.setenv("PATH", str(made.parent))
    return made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the control daemon."""
    with subprocess.Popen(["/bin/sleep", str(ENDLESS_S)]) as made:
        yield made
        made.kill()


def asked_of(
    tmp_path: Path, process: subprocess.Popen[bytes], is_given_up: Callable[[], bool]
) -> Daemon:
    pipe = pipe_directory(tmp_path / "run", UUID)
    pipe.mkdir(parents=True)
    (pipe / "control").touch()
    made = Daemon(tmp_path / "run", UUID, 1 << 30, is_given_up=is_given_up)
    made.process = PidfdProcess(process.pid)
    return made


@pytest.mark.usefixtures("tool")
def test_a_daemon_that_is_not_wanted_any_more_is_asked_no_longer(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "SILENT_S", ENDLESS_S)
    daemon = asked_of(tmp_path, process, (tmp_path / "asked").exists)

    assert daemon.why_silent()


@pytest.mark.usefixtures("tool")
def test_a_daemon_without_sockets_is_not_asked(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    daemon = asked_of(tmp_path, process, lambda: True)
    (pipe_directory(tmp_path / "run", UUID) / "control").unlink()

    assert daemon.why_silent().endswith("pipe is empty")
    assert not (tmp_path / "asked").exists()


@pytest.mark.usefixtures("tool")
def test_a_daemon_that_ends_is_asked_no_longer(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "SILENT_S", ENDLESS_S)
    daemon = asked_of(tmp_path, process, lambda: False)

    def end_it_once_asked() -> None:
        wait_until((tmp_path / "asked").exists)
        process.kill()

    ending = threading.Thread(target=end_it_once_asked)
    ending.start()
    assert daemon.why_silent()
    ending.join()

    with pytest.raises(MpsError, match="ended at once"):
        daemon.why_silent()


@pytest.mark.usefixtures("tool")
def test_a_daemon_that_is_silent_is_not_taken_for_one_without_a_server(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "SILENT_S", 0.2)
    daemon = asked_of(tmp_path, process, lambda: False)

    with pytest.raises(MpsSilentError, match="did not answer"):
        daemon.start_server()
