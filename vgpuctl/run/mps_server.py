"""The MPS server whose clients the programs of `vgpuctl run --mps` are.

A daemon that runs already is used: that of CUDA_MPS_PIPE_DIRECTORY, or the one in MPS's own default
directory. Otherwise the runs of one run directory share one for each GPU, in
``<run-dir>/run-mps/<GPU-UUID>``: ``pipe`` and ``log`` are the daemon's, ``pid`` tells which process
it is, and each run keeps a shared lock on ``users`` for as long as it lives. The first run starts
the daemon, and the last one ends it, or the next `vgpuctl run` where the last one was killed.
Starting, leaving and sweeping exclude each other by a lock on ``run-mps`` itself.

Compute mode and settings of the GPU stay as they are: no share of threads is set, since the shares
are held in time. The daemon itself is in `mps_daemon`.
"""

import contextlib
import fcntl
import os
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from deviceplugin.mps.control_pipe import TOOL
from deviceplugin.mps.processes import PidfdProcess
from libvgpu.errors import AllocationRefused, MpsError, UsageError

from .directory_lock import locked
from .mps_daemon import MARK, PIPE_VARIABLE, MpsDaemon

#: Where MPS looks for its daemon when no variable says where.
DEFAULT_PIPE_DIRECTORY = "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's default
_DIRECTORY = "run-mps"
_END_S = 5.0
_PATIENCE_S = 60.0


@contextlib.contextmanager
def served(
    run_dir: Path, uuids: Sequence[str], environment: Mapping[str, str], *, simulated: bool
) -> Iterator[str]:
    """Gives the pipe directory of a daemon that serves the GPUs until the context ends.

    Args:
        environment: in which a program finds the GPUs, and the tool.
        simulated: they are a simulated machine's; MPS's default directory is not asked then, since
            what answers there may be another machine's.

    Raises:
        MpsError: there is no tool, the daemon that was named does not answer, or none starts.
        UsageError: several GPUs, and no daemon that serves them.
    """
    tool = shutil.which(TOOL, path=environment.get("PATH", os.defpath))
    if tool is None:
        raise MpsError(
            f"--mps needs {TOOL}, which is not on PATH",
            hint="install the driver's MPS tools, or leave --mps out",
        )
    named = environment.get(PIPE_VARIABLE)
    if named:
        if not MpsDaemon(tool, Path(named), environment).answers():
            raise MpsError(
                f"{PIPE_VARIABLE} is {named!r}, and no MPS daemon answers there",
                hint=f"start it ({TOOL} -d), or unset {PIPE_VARIABLE}: then vgpuctl run starts one",
            )
        yield named
        return
    if not simulated and MpsDaemon(tool, Path(DEFAULT_PIPE_DIRECTORY), environment).answers():
        yield DEFAULT_PIPE_DIRECTORY
        return
    if len(uuids) > 1:
        raise UsageError(
            f"--mps with {len(uuids)} GPUs needs a daemon that serves them all: the one that "
            f"vgpuctl run starts serves one GPU; start it ({TOOL} -d) and name its directory in "
            f"{PIPE_VARIABLE}, or give one --gpu"
        )
    with _own(run_dir / _DIRECTORY, uuids[0], tool, environment) as pipe:
        yield pipe


def sweep(run_dir: Path) -> None:
    """Ends the daemons whose runs were all killed; one that is being started is left alone."""
    root = run_dir / _DIRECTORY
    if not root.is_dir():
        return
    with contextlib.suppress(AllocationRefused), _locked(root, 0.0):
        for directory in list(root.iterdir()):
            with open(directory / "users", "ab") as users:
                _end_if_unused(directory, users.fileno())


@contextlib.contextmanager
def _own(root: Path, uuid: str, tool: str, environment: Mapping[str, str]) -> Iterator[str]:
    directory = root / uuid
    daemon = MpsDaemon(tool, directory / "pipe", environment)
    with contextlib.ExitStack() as kept:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(root, _PATIENCE_S):
            directory.mkdir(mode=0o700, exist_ok=True)
            users = kept.enter_context(open(directory / "users", "ab"))
            kept.callback(_leave, root, directory, users.fileno())
            fcntl.flock(users, fcntl.LOCK_SH)
            if not daemon.answers():
                _end_process(directory)  # of an earlier one that is stuck
                try:
                    daemon.start(directory, uuid)
                except MpsError:
                    kept.pop_all()
                    _end_if_unused(directory, users.fileno())
                    users.close()
                    raise
        yield str(directory / "pipe")


def _leave(root: Path, directory: Path, users: int) -> None:
    with _locked(root, _PATIENCE_S):
        _end_if_unused(directory, users)


def _end_if_unused(directory: Path, users: int) -> None:
    """Ends a daemon that no other run uses and removes its files; `root` is locked."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    _end_process(directory)
    shutil.rmtree(directory, ignore_errors=True)


def _end_process(directory: Path) -> None:
    try:
        pid = int((directory / "pid").read_text())
        process = PidfdProcess(pid)
    except (OSError, ValueError, MpsError):
        return  # it never began, or has ended
    try:
        environment = _environment_of(pid)
        if environment.get(MARK) != str(directory / "pipe"):
            return  # another process has its number by now
        tool = shutil.which(TOOL, path=environment.get("PATH", os.defpath))
        if tool is not None:
            with contextlib.suppress(MpsError):
                MpsDaemon(tool, directory / "pipe", environment).quit()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not process.ended(_END_S):
                process.send(number)
        process.ended(_END_S)
    finally:
        process.close()


def _environment_of(pid: int) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return {
        os.fsdecode(name): os.fsdecode(value)
        for name, is_set, value in (entry.partition(b"=") for entry in entries)
        if is_set
    }


def _locked(root: Path, patience_s: float) -> contextlib.AbstractContextManager[None]:
    return locked(root, patience_s, "starting or ending MPS")
