"""What answers in an MPS pipe directory, where root of a container may have put anything."""

import contextlib
import json
import os
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

from msgspec import inspect

from deviceplugin.mps import client_faults, control_pipe, daemon, state_files
from deviceplugin.store.mps_paths import pipe_directory
from fuzz.shapes import Shapes, words_of
from libvgpu.errors import MpsError

_WANTED, _STATE = map(inspect.type_info, (state_files.Wanted, state_files.MpsState))
_WORDS = [*dict.fromkeys([*words_of(_WANTED), *words_of(_STATE)]), "ready", "GPU-1", "1", "100.0",
          "inf", "FAULT", "12345 1 2", "999999999", "\u0661", "1_0", "-1", "nan",
          str(os.getpid())]  # fmt: skip
_FOLDER = Path(mkdtemp(prefix="vgpu-fuzz-"))
_UUID = "GPU-1"


class _Process:
    """A daemon that lives; this process is its child."""

    pid = os.getppid()

    def ended(self, within_s: float = 0.0) -> bool:
        """It never does."""
        return False

    def close(self) -> None:
        """Nothing is held."""


def one(data: bytes) -> None:
    """Asks once, with answers of the input's; or reads a file."""
    shapes = Shapes(data)
    how = shapes.byte()
    (_ask, _files, _faults)[how % 3](shapes, how // 3)


def _ask(shapes: Shapes, how: int) -> None:
    def tool(*_: object) -> tuple[int, str, str]:
        failed = shapes.pick((None, None, None, TimeoutError, InterruptedError, OverflowError,
                              OSError(2, "no")))  # fmt: skip
        if failed is not None:
            raise failed
        return shapes.byte() >> 7, shapes.text(_WORDS), shapes.text(_WORDS)

    pipe = pipe_directory(_FOLDER, _UUID)
    pipe.mkdir(parents=True, exist_ok=True)
    (pipe / daemon._PID_FILE).write_bytes(shapes.some())
    with contextlib.suppress(OSError):
        (pipe / "control").unlink()
    if how & 1:
        (pipe / "control").symlink_to("elsewhere")
    elif how & 2:
        (pipe / "control").touch()
    where = "deviceplugin.mps.control_pipe"
    with patch(f"{where}.ask_tool", tool), patch(f"{where}.tool_path", lambda: "tool"):
        control_pipe.is_ready(_FOLDER, _UUID if how & 4 else "GPU-2")
        _follow(daemon.Daemon(_FOLDER, _UUID, 1024))


def _follow(asked: daemon.Daemon) -> None:
    asked._pid_in_file()
    asked._stranger()
    asked.process = _Process()  # type: ignore[assignment]
    with contextlib.suppress(MpsError):
        asked.why_silent()
        if asked.find_server() and asked.server is not None:
            asked.server.close()
    asked.server = _Process()  # type: ignore[assignment]
    with contextlib.suppress(MpsError):
        asked.settle()
        asked.changed_settings()
        asked.server_status()


def _files(shapes: Shapes, how: int) -> None:
    path = state_files.state_path(_FOLDER) if how & 1 else state_files.wanted_path(_FOLDER)
    path.parent.mkdir(exist_ok=True)
    content = json.dumps(shapes.like(_STATE if how & 1 else _WANTED, _WORDS)).encode()
    path.write_bytes(shapes.rest() if how & 2 else content)
    with contextlib.suppress(MpsError):
        (state_files.read_state if how & 1 else state_files.read_wanted)(_FOLDER)


def _faults(shapes: Shapes, how: int) -> None:
    log = _FOLDER / "log"
    log.write_bytes(shapes.some())
    faults = client_faults.ClientFaults(log)
    faults.begin()
    for _ in range(how % 4):
        log.write_bytes((b"" if how & 1 else log.read_bytes()) + shapes.some() + b"fatal gpu\n")
        faults.look(shapes.text(_WORDS))
