"""Tools whose peer is not trusted, and processes that are not ours."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deviceplugin.mps.processes import PidfdProcess, ask_tool, is_ours, parent_of
from libvgpu.errors import MpsError
from support.lines import next_line
from support.waiting import PATIENCE_S

pytestmark = pytest.mark.process

MOST = 1000
NOBODY = 65534


def shell(script: str, text: str = "", timeout_s: float = PATIENCE_S) -> tuple[int, str, str]:
    return ask_tool(["sh", "-c", script], text, {"PATH": "/usr/bin:/bin"}, timeout_s, MOST)


def test_a_tool_is_asked_and_answers() -> None:
    assert shell("read word; echo $word there; echo oh >&2; exit 3", "hello\n") == (
        3,
        "hello there",
        "oh",
    )
    assert shell("exec true", "not read\n") == (0, "", "")


@pytest.mark.parametrize("stream", [1, 2])
def test_a_tool_that_says_too_much_is_ended(stream: int) -> None:
    with pytest.raises(OverflowError):
        shell(f"yes >&{stream}")


@pytest.mark.parametrize("script", ["exec sleep 60", "exec >&- 2>&-; exec sleep 60"])
def test_a_tool_that_does_not_end_is_ended(script: str) -> None:
    began = time.monotonic()

    with pytest.raises(TimeoutError):
        shell(script, timeout_s=0.2)

    assert time.monotonic() - began < PATIENCE_S


def test_a_tool_whose_answer_nobody_waits_for_is_ended() -> None:
    asked = iter([False, False, True])

    with pytest.raises(InterruptedError):
        ask_tool(
            ["sleep", "60"], "", {"PATH": "/usr/bin:/bin"}, PATIENCE_S, MOST, lambda: next(asked)
        )


def test_the_parent_of_a_process_with_any_name_is_told() -> None:
    comm = Path("/proc/self/comm")
    name = comm.read_bytes()
    try:
        comm.write_bytes(b"\xff) R 1 (")
        assert parent_of(os.getpid()) == os.getppid()
    finally:
        comm.write_bytes(name)


def test_a_process_is_watched_until_it_ends() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"A_B": "c d"},
        text=True,
    )
    next_line(child)  # a process that is just being started has no environment yet
    watched = PidfdProcess(child.pid)
    try:
        assert not watched.ended()
        assert is_ours(child.pid, "A_B=c d")
        assert not is_ours(child.pid, "A_B=c")
        assert parent_of(child.pid) != 0
    finally:
        child.communicate("\n", timeout=PATIENCE_S)

    assert watched.ended(PATIENCE_S)
    watched.close()
    assert parent_of(child.pid) == 0
    with pytest.raises(MpsError, match=f"process {child.pid} cannot be watched"):
        PidfdProcess(child.pid)


@pytest.mark.root
@pytest.mark.parametrize("who", ["another user", "root with mounts of its own"])
def test_what_a_container_starts_is_not_ours_whatever_its_environment(who: str) -> None:
    """A daemon of ours would be adopted by its environment and a file that containers can write."""
    user = NOBODY if who == "another user" else None
    prefix = [] if user else ["unshare", "--mount"]
    child = subprocess.Popen(
        [*prefix, "sh", "-c", "echo started; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"A_B": "c d", "PATH": os.environ["PATH"]},
        user=user,
        text=True,
    )
    try:
        next_line(child)
        assert not is_ours(child.pid, "A_B=c d")
    finally:
        child.communicate("\n", timeout=PATIENCE_S)
