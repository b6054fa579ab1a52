"""What the agent and the runner of the MPS daemons tell each other: two small files and a lock.

``<run-dir>/mps/wanted``  written by the agent alone: the GPUs that are to be under MPS now
``<run-dir>/mps/state``   written by the runner alone: how each of them is. A GPU stands in it for
                          as long as its compute mode is not the one that was found, so the next
                          runner knows what to put back after this one was killed.
``<run-dir>/mps/lock``    locked by the runner for as long as it lives

Both are JSON and replaced whole, so a reader never sees a part. `wanted` has a token, which the
runner repeats in `state` once it follows it: so the agent knows which wish a state answers. No
container sees any of them: only ``<GPU-UUID>/pipe`` is mounted. But a container can fill the file
system, so each file is written where its blocks are already: over the one before, which is kept as
``NAME.next``. A reader may still have that one open, so both sides lock it.

Agent and runner may be of two versions while a node is upgraded, either the newer: a field that the
reader does not know is left out, and one that the writer did not know has its default. So what is
there keeps its meaning, and what is new is a new field.
"""

import fcntl
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from libvgpu.decoding import json_decoder
from libvgpu.errors import MpsError

#: Each file has at least so many: more than is said of the GPUs of a node.
_RESERVED_BYTES = 16 << 10
READY, STARTING, STOPPING, FAILED = "ready", "starting", "stopping", "failed"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which GPUs are to be under MPS.

    Attributes:
        gpus: by UUID, whether containers have slices of it (then its settings are watched).
        root: where pipes and logs are to be (`daemon_home`); empty for the run directory.
    """

    token: str
    gpus: Mapping[str, bool]
    root: str = ""


@dataclass(frozen=True, slots=True)
class GpuMps:
    """How MPS is on one GPU.

    Attributes:
        phase: `READY`, `STARTING`, `STOPPING` or `FAILED`.
        reason: why it failed, in a sentence.
        found_mode: the compute mode to put back; None while it was not changed.
        daemon: process id of the control daemon, 0 without one.
        server: process id of its server, 0 without one.
        restarts: how often server or daemon ended by themselves and were started again.
        restored: how often settings that somebody had changed were put back.
        faults: how often a fault of one client ended the work of all, as the server lived on.
    """

    phase: str
    reason: str = ""
    found_mode: int | None = None
    daemon: int = 0
    server: int = 0
    restarts: int = 0
    restored: int = 0
    faults: int = 0


@dataclass(frozen=True, slots=True)
class MpsState:
    """What the runner says.

    Attributes:
        token: of the `Wanted` that it follows, empty while it goes by the config.
        problem: why it ended without doing its work.
    """

    token: str = ""
    problem: str = ""
    gpus: Mapping[str, GpuMps] = field(default_factory=dict)


_Content = TypeVar("_Content")
_WANTED, _STATE = json_decoder(Wanted), json_decoder(MpsState)


def mps_directory(run_dir: Path) -> Path:
    """Returns where everything of MPS is in a run directory."""
    return run_dir / "mps"


def lock_path(run_dir: Path) -> Path:
    """Returns the file that the runner of ``run_dir`` keeps locked."""
    return mps_directory(run_dir) / "lock"


def wanted_path(run_dir: Path) -> Path:
    """Returns the agent's file."""
    return mps_directory(run_dir) / "wanted"


def state_path(run_dir: Path) -> Path:
    """Returns the runner's file."""
    return mps_directory(run_dir) / "state"


def runner_alive(run_dir: Path) -> bool:
    """Returns whether a runner holds the lock of ``run_dir``."""
    try:
        with open(lock_path(run_dir), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def new_token() -> str:
    """Returns a token that no other `Wanted` has."""
    return uuid.uuid4().hex


def read_wanted(run_dir: Path) -> Wanted | None:
    """Returns what the agent wants, None where it has not said so yet.

    Raises:
        MpsError: the file is damaged.
    """
    return _read(wanted_path(run_dir), _WANTED)


def write_wanted(run_dir: Path, wanted: Wanted) -> None:
    """Says what the agent wants.

    Raises:
        MpsError: it cannot be written.
    """
    _write(wanted_path(run_dir), wanted)


def read_state(run_dir: Path) -> MpsState | None:
    """Returns what the runner last said, None where none has run.

    Raises:
        MpsError: the file is damaged.
    """
    return _read(state_path(run_dir), _STATE)


def write_state(run_dir: Path, state: MpsState) -> None:
    """Says how the runner's GPUs are.

    Raises:
        MpsError: it cannot be written.
    """
    _write(state_path(run_dir), state)


def _read(path: Path, decoder: "msgspec.json.Decoder[_Content]") -> _Content | None:
    try:
        while True:
            with open(path, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # it is being written, so the path leads to the other one by now
                return decoder.decode(file.read())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MpsError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise MpsError(f"{path} is damaged: {error}") from None


def _write(path: Path, content: Wanted | MpsState) -> None:
    """Replaces a file; only one process at a time may."""
    draft, last = path.with_name(f"{path.name}.next"), path.with_name(f"{path.name}.last")
    text = msgspec.json.encode(content) + b"\n"
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if last.exists():  # of a writer that was killed here
            last.unlink() if draft.exists() else last.replace(draft)
        _fill(draft, text.ljust(_RESERVED_BYTES))  # blanks are no part of the JSON
        if path.exists():
            os.link(path, last)
        else:
            shutil.copyfile(draft, last)  # so that there are two from the start
        draft.replace(path)
        last.replace(draft)
    except OSError as error:
        raise MpsError(f"{path} cannot be written: {error.strerror}") from None


def _fill(path: Path, text: bytes) -> None:
    """Writes a file, into the blocks that it has unless somebody still reads it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            path.unlink()
            _fill(path, text)
            return
        file.write(text)
        file.truncate()
