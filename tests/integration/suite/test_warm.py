"""Programs that are forked from a warm one (`support.warm`) are as others are."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support import CLIENT_PATH, ROOT, warm
from support.suite.leftovers import MARK
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
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH, "PYTHONHASHSEED": "1"}  # of its own
    with monkeypatch.context() as patch:
        patch.setattr(warm, "PATIENCE_S", 0.5)
        with pytest.raises(subprocess.TimeoutExpired):
            warm.run(["-c", "import time; time.sleep(600)"], environment)

    assert warm.run(["-c", "print('next')"], environment).stdout == "next\n"


def test_a_started_program_is_told_to_end_killed_and_known_while_it_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH}
    waits = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print('on', flush=True)"
    with (tmp_path / "log").open("wb") as log:
        ended, killed = (
            warm.start(["-c", f"{waits}\nwhile True: signal.pause()"], environment, log)
            for _ in range(2)
        )
    wait_until(lambda: (tmp_path / "log").read_text().count("on") == 2)
    assert ended.poll() is None and warm.left() == {ended.pid, killed.pid}

    ended.send_signal(signal.SIGTERM)
    killed.kill()

    assert ended.wait(PATIENCE_S) == ended.poll() == 3
    assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    assert warm.left() == set()


@pytest.mark.parametrize("run", [None, ""], ids=["of one test", "of several"])
def test_a_program_that_a_test_starts_is_ended_by_it_and_missed_if_not(
    tmp_path: Path, run: str | None
) -> None:
    environment = {**os.environ, "PYTHONPATH": CLIENT_PATH}
    if run is not None:
        environment[MARK] = run
    log = tmp_path / "log"

    with log.open("w") as told:
        code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
        program = warm.start(["-c", code], environment, told)

    wait_until(lambda: log.read_text() == f"{program.pid}\n")
    assert program.poll() is None
    assert warm.left() == ({program.pid} if run is None else set())
    program.terminate()
    assert program.wait(PATIENCE_S) == -signal.SIGTERM
    assert warm.left() == set()


def test_a_started_program_leads_a_group_where_asked(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as told:
        code = "import time; print('on', flush=True); time.sleep(600)"
        program = warm.start(["-c", code], os.environ, told, group=True)
    wait_until(log.read_text)
    assert os.getpgid(program.pid) == program.pid
    assert psutil.Process(program.pid).cmdline()[1:3] == ["-c", code]

    os.killpg(program.pid, signal.SIGKILL)

    assert program.wait(PATIENCE_S) == -signal.SIGKILL


def test_an_agent_begins_with_one_thread(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "print('grpc' in sys.modules, len(os.listdir('/proc/self/task')), flush=True)\n"
        "sys.exit(3)"
    )
    log = tmp_path / "log"
    with log.open("w") as told:
        program = warm.start(["-c", code], os.environ, told, like="deviceplugin")

    assert program.wait(PATIENCE_S) == 3
    assert log.read_text() == "True 1\n"
