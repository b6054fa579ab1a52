"""Talking to the MPS control daemon of a GPU through its pipe directory.

Nothing here starts or owns a daemon (`daemon` does): whoever answers in
``<run-dir>/mps/<GPU-UUID>/pipe`` is the daemon of that GPU. Root in a container reaches that
directory: it may have put anything there. So an answer is text that may be wrong, it may not come,
and a link is not followed, which might lead to another GPU's daemon: the mount follows none
(`pipe_mount`), and where there is no such mount, it is looked for before each question.
"""

import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.errors import MpsError, MpsSilentError

from .processes import ask_tool

TOOL = "nvidia-cuda-mps-control"
READY_COMMAND = "get_default_active_thread_percentage"
_ASK_TIMEOUT_S = 5.0
_SAID_MOST = 200
_ANSWER_MOST = 64 << 10


def tool_path() -> str:
    """Returns the control tool.

    Raises:
        MpsError: it is not installed.
    """
    found = shutil.which(TOOL)
    if found is None:
        raise MpsError(
            f"{TOOL} is not in PATH, so no GPU can be shared in family mps",
            hint="install the driver's MPS tools, or share the GPU in family vgpu",
        )
    return found


def daemon_environment(run_dir: Path, uuid: str) -> dict[str, str]:
    """Returns the environment that points the control tool at one GPU's daemon."""
    pipe = pipe_directory(run_dir, uuid)
    own = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_MPS_")}
    return {
        **own,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_MPS_LOG_DIRECTORY": str(pipe.parent / "log"),
        "CUDA_VISIBLE_DEVICES": uuid,
    }


def ask(
    run_dir: Path,
    uuid: str,
    commands: str | Sequence[str],
    timeout_s: float = _ASK_TIMEOUT_S,
    is_given_up: Callable[[], bool] = lambda: False,
) -> str:
    """Sends one command or several to a GPU's daemon and returns what it answers.

    Args:
        is_given_up: whether nobody waits for the answer any more.

    Raises:
        MpsSilentError: it does not answer in time.
        MpsError: there is no daemon, it does not take the command, or the question was given up.
    """
    lines = [commands] if isinstance(commands, str) else commands
    _check_no_link(pipe_directory(run_dir, uuid) / "control")
    text = "".join(f"{line}\n" for line in lines)
    try:
        status, answer, problem = ask_tool(
            [tool_path()],
            text,
            daemon_environment(run_dir, uuid),
            timeout_s,
            _ANSWER_MOST,
            is_given_up,
        )
    except TimeoutError:
        raise MpsSilentError(
            f"the MPS daemon of GPU {uuid} did not answer in {timeout_s:.0f} s"
        ) from None
    except InterruptedError:
        raise MpsError(f"the question to the MPS daemon of GPU {uuid} was given up") from None
    except OverflowError:
        raise MpsError(
            f"the MPS daemon of GPU {uuid} answered with more than {_ANSWER_MOST} bytes, which no "
            "MPS daemon does"
        ) from None
    except OSError as error:
        raise MpsError(f"{TOOL} cannot be run: {error.strerror}") from None
    if status != 0:
        said = " ".join((problem or answer).split())[:_SAID_MOST]
        raise MpsError(f"the MPS daemon of GPU {uuid} does not answer: {said or 'no reason given'}")
    return answer


def _check_no_link(path: Path) -> None:
    try:
        is_link = stat.S_ISLNK(path.lstat().st_mode)
    except OSError:
        return  # the tool says in its own words that nobody is there
    if is_link:
        raise MpsError(
            f"{path} is a link, which no MPS daemon makes: a container has tampered with the pipe "
            "directory"
        )


def is_ready(
    run_dir: Path,
    uuid: str,
    timeout_s: float = _ASK_TIMEOUT_S,
    is_given_up: Callable[[], bool] = lambda: False,
) -> bool:
    """Returns whether a GPU's daemon answers in time; `ask` says what the arguments are."""
    if not pipe_directory(run_dir, uuid).is_dir():
        return False
    try:
        float(ask(run_dir, uuid, READY_COMMAND, timeout_s, is_given_up))
    except (MpsError, ValueError):
        return False
    return True
