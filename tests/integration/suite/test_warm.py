"""Programs that are forked from a warm one (`support.warm`) are as others are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import CLIENT_PATH, ROOT, leftovers, warm
from support.waiting import PATIENCE_S, wait_until

PROGRAMS = {
    "what it was given": "import os, sys; print(sys.argv, os.environ['GIVEN'], sys.stdin.read())",
    "a status": "import sys; print('said'); sys.exit(3)",
    "a sentence": "import sys; sys.exit('no')",
    "an exception": "1 / 0",
    "the end of all threads": (
        "import atexit, threading; atexit.register(print, 'end')\n"
        "main = threading.main_thread()\n"
        "threading.Thread(target=lambda: (main.join(), print('thread'))).start()"
    ),
    "a signal": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_ends_and_says_as_one_of_its_own(what: str) -> None:
    words = ["-c", PROGRAMS[what], "one", "two"]
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH, "GIVEN": what}

    forked = warm.run(words, environment, told="told")
    alone = subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, input="told", capture_output=True,
        text=True, check=False,
    )  # fmt: skip

    assert (forked.returncode, forked.stdout) == (alone.returncode, alone.stdout)
    assert forked.stderr.splitlines()[-1:] == alone.stderr.splitlines()[-1:]


def test_the_next_program_knows_nothing_of_the_last() -> None:
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH}
    warm.run(["-c", "import os, sys; known = os.environ['LEFT'] = sys.left = 1"], environment)

    told = warm.run(
        [
            "-c",
            "import os, sys; print('known' in vars(), 'LEFT' in os.environ, hasattr(sys, 'left'))",
        ],
        environment,
    )

    assert told.stdout.split() == ["False"] * 3


def test_no_driver_is_loaded_before_a_program_begins() -> None:
    maps = warm.run(
        ["-c", "print(open('/proc/self/maps').read())"],
        {**os.environ, "PYTHONPATH": CLIENT_PATH},
    ).stdout

    assert "cuda/bindings/" in maps
    assert "libcuda" not in maps and "libnvidia-ml" not in maps


def test_a_program_that_hangs_is_ended_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{CLIENT_PATH}:/of-its-own"}
    with monkeypatch.context() as patch:
        patch.setattr(warm, "PATIENCE_S", 0.5)
        with pytest.raises(subprocess.TimeoutExpired):
            warm.run(["-c", "import time; time.sleep(600)"], environment)

    assert warm.run(["-c", "print('next')"], environment).stdout == "next\n"


WAITS = "import signal, sys; print('here', file=sys.stderr, flush=True); signal.pause()"


def _starts(tmp_path: Path, words: list[str], *, group: bool = False) -> warm.Program:
    """Starts a program as agents are, and waits until it says its first word."""
    log = tmp_path / "log"
    with log.open("w") as stderr:
        program = warm.start(words, {**os.environ, "PYTHONPATH": CLIENT_PATH}, stderr, group=group)
    wait_until(log.read_text)
    return program


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_started_program_lives_until_it_is_ended_and_says_how(
    tmp_path: Path, number: signal.Signals
) -> None:
    program, other = (_starts(tmp_path, ["-c", WAITS]) for _ in range(2))
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0)
    assert warm.running() == {program.pid, other.pid}

    program.send_signal(number)

    assert program.wait(PATIENCE_S) == program.poll() == -number
    assert not psutil.pid_exists(program.pid)
    assert warm.running() == {other.pid}
    program.kill()  # as `subprocess.Popen`: nothing, since it has ended
    other.kill()
    assert other.wait(PATIENCE_S) == -signal.SIGKILL


def test_a_started_program_leads_a_group_where_asked(tmp_path: Path) -> None:
    program = _starts(tmp_path, ["-c", WAITS], group=True)
    assert os.getpgid(program.pid) == program.pid
    os.killpg(program.pid, signal.SIGKILL)
    assert program.wait(PATIENCE_S) == -signal.SIGKILL


def test_an_agent_begins_with_one_thread_and_ends_as_python_does(tmp_path: Path) -> None:
    look = (
        "import os, sys\n"
        "print('grpc' in sys.modules, len(os.listdir('/proc/self/task')), file=sys.stderr)\n"
        "sys.exit(3)"
    )
    program = _starts(tmp_path, ["-c", look])
    assert program.wait(PATIENCE_S) == 3
    assert (tmp_path / "log").read_text() == "True 1\n"


def test_a_started_program_that_its_test_leaves_is_found_and_ended(tmp_path: Path) -> None:
    program = _starts(tmp_path, ["-c", WAITS])
    watch = leftovers._of_this_process()
    assert program.pid in watch.look()
    psutil.Process(program.pid).kill()
    wait_until(lambda: program.pid not in watch.look())
