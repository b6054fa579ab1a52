"""How this suite runs its tests.

Leftovers end and fail theirs, disturbed measurements repeat, and no test stops the run.
"""

import re
import subprocess
from pathlib import Path

import psutil
import pytest

from support import ROOT, warm
from support.waiting import PATIENCE_S

LEAVER = """
import subprocess
from support.suite import leftovers
leftovers.GRACE_SECONDS = 0.5
def test_leaves():
    print("started", subprocess.Popen(["sleep", "600"]).pid)
def test_leaves_an_orphan():
    subprocess.run(["sh", "-c", "sleep 600 >&2 & echo started $!"], text=True)
def test_ends_its_own():
    subprocess.run(["true"])
"""
SECOND_TIME_LUCKY = """
import pytest
from support.suite import quiet
quiet.MOST_FOREIGN_CORES = quiet.MOST_STOLEN_CORES = quiet.MOST_STALL_SECONDS = {most_cores}
quiet.PATIENCE_SECONDS = 0.0
tries = []
@pytest.mark.timing
def test_measures(tmp_path):
    tries.append(tmp_path)
    assert len(set(tries)) == 2
def test_measures_nothing():
    tries.append(None)
    assert tries.count(None) == 2
"""
DEAF = """
import ctypes, pytest
from support.suite import watchdog
watchdog.GRACE_SECONDS = 0.5
def sleep_deaf_to_signals():
    libc = ctypes.PyDLL(None)  # keeps the interpreter's lock, as a deadlock within C would
    libc.sigfillset(mask := ctypes.create_string_buffer(128))
    libc.pthread_sigmask(0, mask, None)
    libc.sleep(60)
@pytest.fixture
def never_ends():
    yield
    sleep_deaf_to_signals()
@pytest.mark.timeout(0.5)
def test_hangs({fixture}):
    {code}
def test_after_it():
    pass
"""
NOBODY_DISTURBS, ALWAYS_DISTURBED = 1000.0, -1000.0  # cores, and seconds at a stretch


def run_pytest(
    folder: Path, code: str, *more: str, files: tuple[str, ...] = ("given",), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs tests, the same in each of some files, where they are to have a worker each."""
    paths = [folder / f"test_{name}.py" for name in files]
    for path in paths:
        path.write_text(code)
    plugins = ("leftovers", "watchdog", "workers", "quiet")
    return warm.run(
        ["-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "pytest_timeout",
         *(word for name in plugins for word in ("-p", f"support.suite.{name}")), *more,
         "--rootdir", str(folder), *map(str, paths)],
        # No other plugin than these: half of what it takes to start.
        {"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin",
         "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        cwd=folder,
    )  # fmt: skip


def state(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return "gone"


def test_a_process_that_a_test_leaves_is_ended_and_fails_it(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, LEAVER)

    assert done.returncode == 1
    assert "ERROR test_given.py::test_leaves - the test left behind" in done.stdout
    assert "ERROR test_given.py::test_leaves_an_orphan - the test left behind" in done.stdout
    assert "3 passed, 2 errors" in done.stdout
    pids = re.findall(r"^started (\d+)", done.stdout, re.M)
    assert [state(int(pid)) in ("gone", psutil.STATUS_ZOMBIE) for pid in pids] == [True, True]


@pytest.mark.parametrize(
    ("most_cores", "outcome"),
    [(NOBODY_DISTURBS, "2 failed"), (ALWAYS_DISTURBED, "1 failed, 1 passed")],
    ids=["quiet", "disturbed"],
)
def test_only_a_disturbed_measurement_is_made_again(
    tmp_path: Path, most_cores: float, outcome: str
) -> None:
    done = run_pytest(tmp_path, SECOND_TIME_LUCKY.format(most_cores=most_cores))

    assert outcome in done.stdout.splitlines()[-1]
    assert ("and was measured again" in done.stdout) == (most_cores == ALWAYS_DISTURBED)
    assert "FAILED test_given.py::test_measures_nothing" in done.stdout


NEVER_RIGHT = """
import pytest
from support.suite import quiet
quiet.MOST_FOREIGN_CORES = quiet.MOST_STOLEN_CORES = quiet.MOST_STALL_SECONDS = {most_cores}
quiet.PATIENCE_SECONDS = 0.0
@pytest.mark.timing
@pytest.mark.parametrize("number", range({count}))
def test_is_never_right(number):
    assert False
"""


STANDS_STILL_ONCE = """
import ctypes, pytest
from support.suite import quiet
quiet.MOST_FOREIGN_CORES = quiet.MOST_STOLEN_CORES = 1000.0
quiet.MOST_STALL_SECONDS = 0.06
quiet.PATIENCE_SECONDS = 0.0
tries = []
@pytest.mark.timing
def test_measures(tmp_path):
    tries.append(tmp_path)
    if len(tries) == 1:
        ctypes.PyDLL(None).usleep(90_000)  # no thread of this process runs meanwhile
    assert len(tries) == 2
"""


def test_a_measurement_in_which_the_machine_stood_still_is_made_again(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, STANDS_STILL_ONCE)

    assert "1 passed" in done.stdout.splitlines()[-1], done.stdout


@pytest.mark.parametrize(
    ("most_cores", "count", "outcome", "status"),
    [
        (ALWAYS_DISTURBED, 3, "3 skipped", 0),
        (ALWAYS_DISTURBED, 4, "4 skipped", 1),
        (NOBODY_DISTURBS, 1, "1 failed", 1),
    ],
    ids=["disturbed", "too-many-disturbed", "quiet"],
)
def test_what_was_always_disturbed_is_not_measured_and_too_much_of_it_fails_the_run(
    tmp_path: Path, most_cores: float, count: int, outcome: str, status: int
) -> None:
    done = run_pytest(tmp_path, NEVER_RIGHT.format(most_cores=most_cores, count=count))

    assert (outcome in done.stdout.splitlines()[-1], done.returncode) == (True, status), done.stdout
    assert ("not measured: others had" in done.stdout) == (most_cores == ALWAYS_DISTURBED)


WANTS_THE_MACHINE = """
import time, pytest
from pathlib import Path
HERE = Path(__file__).parent
@pytest.mark.timing({how})
def test_wants_the_machine():
    name = Path(__file__).stem[-1]
    with (HERE / "tries").open("a") as tries:
        tries.write(name)
    running = HERE / f"running-{{name}}"
    running.touch()
    deadline = time.monotonic() + {patience_s}
    both = lambda: set((HERE / "tries").read_text()) == {{"a", "b"}}
    while not both() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    others = [path for path in HERE.glob("running-*") if path != running]
    running.unlink()
    assert not others
"""


@pytest.mark.parametrize(
    ("how", "patience_s", "tries"),
    [("", PATIENCE_S, {3, 4}), ("alone=True", 0.3, {2})],
    ids=["next-to-others", "alone"],
)
def test_what_fails_next_to_others_is_measured_alone(
    tmp_path: Path, how: str, patience_s: float, tries: set[int]
) -> None:
    code = WANTS_THE_MACHINE.format(how=how, patience_s=patience_s)
    done = run_pytest(tmp_path, code, "--workers", "2", files=("a", "b"))

    assert "2 passed" in done.stdout.splitlines()[-1], done.stdout
    assert len((tmp_path / "tries").read_text()) in tries


@pytest.mark.parametrize(("workers"), [(), ("--workers", "2")], ids=["one-process", "workers"])
def test_what_workers_could_not_measure_fails_the_run(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    code = NEVER_RIGHT.format(most_cores=ALWAYS_DISTURBED, count=4)
    done = run_pytest(tmp_path, code, *workers)

    assert (done.returncode, "4 skipped" in done.stdout.splitlines()[-1]) == (1, True), done.stdout
    assert "4 of 4 tests that measure time could not be measured" in done.stdout


@pytest.mark.parametrize(
    ("fixture", "code"),
    [("", "sleep_deaf_to_signals()"), ("never_ends", "assert False")],
    ids=["test", "teardown"],
)
def test_a_test_that_hangs_deaf_to_signals_is_ended_and_named(
    tmp_path: Path, fixture: str, code: str
) -> None:
    code = DEAF.format(fixture=fixture, code=code)

    done = run_pytest(
        tmp_path, code, "--workers", "1", "-o", "timeout=20", "-o", "timeout_func_only=true"
    )

    assert done.returncode == 1
    assert "sleep_deaf_to_signals" in done.stderr  # where it hung
    assert "test_hangs failed: the worker that ran it ended with status 1" in done.stdout
    assert "1 passed" in done.stdout


SHARED = """
import os, signal, warnings, pytest
@pytest.fixture(scope="session", autouse=True)
def ends():
    yield
    print("the run ended", file=open("/dev/stderr", "a"))
def test_first():
    pass
def test_dies():
    if "test_a" in __file__:
        os.kill(os.getpid(), signal.SIGKILL)
def test_warns():
    warnings.warn("so it is", UserWarning)
def test_last():
    assert "test_b" not in __file__, "wrong"
"""


def test_workers_tell_all_and_one_that_dies_fails_its_test_only(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, SHARED, "--workers", "2", "--durations=1", files=("a", "b", "c"))

    assert (done.returncode, done.stderr.count("the run ended")) == (1, 3), done.stdout
    assert "2 failed, 10 passed, 3 warnings" in done.stdout, done.stdout
    assert "FAILED test_a.py::test_dies - the worker that ran it ended by SIGKILL" in done.stdout
    assert "FAILED test_b.py::test_last - AssertionError: wrong" in done.stdout
    assert "UserWarning: so it is" in done.stdout


def test_workers_end_with_the_first_failure_where_it_is_asked_for(tmp_path: Path) -> None:
    code = "def test_it(): assert 'test_a' not in __file__\n"

    done = run_pytest(tmp_path, code, "--workers", "1", "-x", files=("a", "b", "c"))

    assert (done.returncode, "1 failed in" in done.stdout) == (1, True), done.stdout


HOLDS_UP = """
import time
from pathlib import Path
from support.waiting import wait_until
RUNS = Path(__file__).with_name("runs")
def test_it():
    if "test_a" in __file__:
        wait_until(RUNS.exists)
        assert False
    RUNS.touch()
    try:
        time.sleep(3600)
    finally:
        RUNS.with_name("torn down").touch()
"""


def test_no_worker_holds_up_the_end_of_a_run(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, HOLDS_UP, "--workers", "2", "-x", files=("a", "b"))

    assert (done.returncode, "1 failed in" in done.stdout) == (1, True), done.stdout
    assert (tmp_path / "torn down").exists()


LEAVES = """
import logging, os, signal
def test_leaves():
    {code}
def test_after_it():
    pass
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("os.environ['LEFT'] = 'so'", "variable LEFT was 'not there' and is 'so'"),
        ("os.chdir('/')", "current folder was"),
        ("logging.getLogger().setLevel(7)", "root logger was (30, False, 0) and is (7, False, 0)"),
        ("signal.signal(signal.SIGHUP, print)", "what SIGHUP does was"),
    ],
)
def test_a_test_that_leaves_a_change_fails(tmp_path: Path, code: str, words: str) -> None:
    done = run_pytest(tmp_path, LEAVES.format(code=code), "-p", "support.suite.own_state")

    assert f"test_leaves failed: the test left a change: {words}" in done.stdout, done.stdout
    assert "2 passed, 1 error" in done.stdout


QUICK = """
import os, subprocess, threading
from pathlib import Path
import pytest
from support.suite import no_process
no_process.QUICK = (Path(__file__).parent,)
def test_starts():
    subprocess.run(["true"])
def test_forks():
    if os.fork() == 0:
        os._exit(0)
    os.wait()
@pytest.mark.process
def test_may():
    subprocess.run(["true"])
def test_starts_nothing():
    threading.Thread().start()
"""


def test_a_quick_test_that_starts_a_process_fails(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, QUICK, "-p", "support.suite.no_process")

    # A newer Python warns of a fork next to threads.
    assert re.search(r"4 passed,( \d warnings?,)? 2 errors", done.stdout), done.stdout
    assert "ERROR test_given.py::test_starts - AssertionError: a quick test started" in done.stdout
    assert "ERROR test_given.py::test_forks - AssertionError: a quick test started" in done.stdout


MANY = """
import pytest
@pytest.mark.parametrize("number", range(40))
def test_it(number):
    print("number", number)
"""


def test_another_order_is_told_and_repeated_by_its_seed(
    tmp_path: Path,
) -> None:
    def order(asked: str) -> tuple[list[str], str]:
        done = run_pytest(tmp_path, MANY, "-p", "support.suite.shuffled", VGPU_RANDOM=asked)
        seed = re.search(r"^order of the tests: VGPU_RANDOM=(\d+)$", done.stdout, re.M)
        return re.findall(r"^number (\d+)$", done.stdout, re.M), seed[1] if seed else ""

    usual, fresh = order("0"), order("1")

    assert usual == ([str(number) for number in range(40)], "")
    assert sorted(fresh[0], key=int) == usual[0] != fresh[0]
    assert order(fresh[1]) == fresh


def test_a_failure_is_said_before_the_run_ends(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "def test_a(): assert 1 == 2\ndef test_b(): pass\n")

    assert done.stdout.index("test_a failed: ") < done.stdout.index("100%")
