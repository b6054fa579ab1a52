"""A command in the foreground behaves as if the shell had started it: status, signals, stops."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from support.lines import expect, next_line
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.command_errors import CommandNotExecutableError, CommandNotFoundError
from vgpuctl.foreground import require_command, run_in_foreground, signals_held

# What a shell at a terminal starts finds these signals as the system has them. Whoever started the
# tests may have them ignored (nohup, `&` in a script), and what is ignored at the start stays so.
AT_A_TERMINAL = """
import signal
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
    signal.signal(number, signal.SIG_DFL)
"""
WRAPPER = """
import os, sys
from vgpuctl.foreground import run_in_foreground, signals_held
with signals_held():
    status = run_in_foreground(sys.argv[1:], os.environ)
sys.exit(status)
"""


def _run(command: list[str]) -> int:
    with signals_held():
        return run_in_foreground(command, os.environ)


def _start(*command: str, process_group: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL + WRAPPER, *command],
        stdout=subprocess.PIPE,
        text=True,
        process_group=process_group,
    )


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"


@pytest.fixture
def children() -> Iterator[list[int]]:
    pids: list[int] = []
    yield pids
    for pid in pids:
        if _state(pid) not in ("gone", "Z"):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("status", [0, 1, 2, 42, 126, 255])
def test_the_status_is_the_commands(status: int) -> None:
    assert _run(["sh", "-c", f"exit {status}"]) == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_ended_by_a_signal_gives_128_and_its_number(number: int) -> None:
    assert _run(["sh", "-c", f"kill -{int(number)} $$"]) == 128 + number


def test_our_signal_mask_is_as_before_afterwards() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])

    _run(["true"])

    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_the_command_starts_with_nothing_blocked() -> None:
    code = "import signal,sys; sys.exit(len(signal.pthread_sigmask(signal.SIG_BLOCK, [])))"

    assert _run([sys.executable, "-c", code]) == 0


def test_what_the_caller_redirected_reaches_the_command(tmp_path: Path) -> None:
    target = tmp_path / "third"
    descriptor = os.open(target, os.O_CREAT | os.O_WRONLY, 0o600)
    os.set_inheritable(descriptor, True)
    try:
        code = f"import os; os.write({descriptor}, b'through')"
        assert _run([sys.executable, "-c", code]) == 0
    finally:
        os.close(descriptor)

    assert target.read_text() == "through"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_sent_to_us_alone_reaches_the_command(number: int) -> None:
    script = f"trap 'echo got; exit 7' {int(number)}; echo ready; while :; do sleep 0.05; done"
    wrapper = _start("sh", "-c", script)
    assert wrapper.stdout is not None
    expect(wrapper)

    wrapper.send_signal(number)

    assert wrapper.wait(timeout=PATIENCE_S) == 7
    assert wrapper.stdout.read() == "got\n"


def test_what_is_ignored_when_we_start_stays_ignored_in_the_command() -> None:
    # GIVEN us and the command, started as nohup and a script's `&` do
    ours = [sys.executable, "-c", WRAPPER]
    script = "trap 'exit 7' USR1; echo ready; while :; do sleep 0.05; done"
    wrapper = subprocess.Popen(
        ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh", *ours, "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert wrapper.stdout is not None
    expect(wrapper)

    # WHEN all of them come, and one that is not ignored after them
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
        wrapper.send_signal(number)

    # THEN the last one alone has ended the command
    assert wrapper.wait(timeout=PATIENCE_S) == 7
    wrapper.stdout.close()


def test_a_killed_wrapper_takes_the_command_with_it(children: list[int]) -> None:
    wrapper = _start("sh", "-c", "echo $$; exec sleep 60")
    children.append(int(next_line(wrapper)))

    wrapper.kill()
    wrapper.wait()

    wait_until(lambda: _state(children[0]) in ("gone", "Z"))


def test_a_stop_stops_both_and_continue_continues_both(children: list[int]) -> None:
    # In a group of its own with us as its parent: the kernel does not stop an orphaned group, which
    # ours is when the shell that started the tests has gone.
    wrapper = _start("sh", "-c", "echo $$; exec sleep 60", process_group=0)
    children += [int(next_line(wrapper)), wrapper.pid]

    wrapper.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(children[0]) == "T" and _state(wrapper.pid) == "T")
    wrapper.send_signal(signal.SIGCONT)

    wait_until(lambda: _state(children[0]) == "S" and _state(wrapper.pid) == "S")
    wrapper.terminate()
    assert wrapper.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM


def test_ctrl_c_at_a_terminal_reaches_the_command_once() -> None:
    # GIVEN a command on a terminal that counts its interrupts
    code = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "print('ready', flush=True)\n"
        "until = time.monotonic() + 60\n"
        "while not seen and time.monotonic() < until: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "sys.exit(10 + len(seen))\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(
            sys.executable,
            [sys.executable, "-c", AT_A_TERMINAL + WRAPPER, sys.executable, "-c", code],
        )
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 100)

    # WHEN the user types Ctrl-C
    os.write(terminal, b"\x03")

    # THEN it came once, and we outlived it
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 11


def test_a_command_that_is_not_there_is_127() -> None:
    with pytest.raises(CommandNotFoundError, match="'no-such-command' was not found") as caught:
        require_command(["no-such-command"], os.environ["PATH"])

    assert caught.value.exit_status == 127


def test_a_command_without_the_executable_bit_is_126(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a program")

    for name, path in ((str(tmp_path / "data"), ""), ("data", str(tmp_path)), (str(tmp_path), "")):
        with pytest.raises(CommandNotExecutableError) as caught:
            require_command([name], path)
        assert caught.value.exit_status == 126


def test_a_file_that_the_kernel_does_not_run_is_126(tmp_path: Path) -> None:
    program = tmp_path / "garbage"
    program.write_bytes(b"\x00\x01\x02")
    program.chmod(0o755)
    require_command([str(program)], "")

    with pytest.raises(CommandNotExecutableError, match="garbage"):
        _run([str(program)])


def test_a_missing_interpreter_is_127(tmp_path: Path) -> None:
    program = tmp_path / "script"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)

    with pytest.raises(CommandNotFoundError, match="script"):
        _run([str(program)])


NOTING_WRAPPER = """
import os, sys, time
from vgpuctl.foreground import run_in_foreground, signals_held
class Work:
    def look(self):
        print(time.monotonic(), flush=True)
with signals_held():
    sys.exit(run_in_foreground(sys.argv[2:], os.environ, Work(), float(sys.argv[1])))
"""


@pytest.mark.timing
def test_side_work_goes_on_at_its_pace() -> None:
    # In a process of its own, since the test runner has threads that do not hold signals back.
    every_s = 0.05
    # The signals it passes on to the command must neither hold the work up nor hurry it.
    script = "trap : USR1; for i in 1 2 3 4 5 6 7 8; do kill -USR1 $PPID; sleep 0.05; done; exit 7"

    ran = subprocess.run(
        [sys.executable, "-c", NOTING_WRAPPER, str(every_s), "sh", "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
    )

    assert ran.returncode == 7
    looked_at_s = [float(line) for line in ran.stdout.split()]
    assert len(looked_at_s) >= 4
    between_s = [b - a for a, b in pairwise(looked_at_s)]
    assert min(between_s) >= every_s * 0.9


WORKING_WRAPPER = """
import os, sys
from vgpuctl.foreground import run_in_foreground, signals_held
class Work:
    working = False
    def look(self):
        if not self.working:
            print("works", flush=True)
        self.working = True
    def stop(self):
        print("put aside", flush=True)
        self.working = False
with signals_held():
    run_in_foreground(["sleep", "60"], os.environ, Work(), 0.02)
"""


def test_work_is_put_aside_before_we_stop_and_taken_up_afterwards(children: list[int]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL + WORKING_WRAPPER],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # the kernel does not stop an orphaned one, which ours may be
    )
    children.append(process.pid)
    expect(process, "works")

    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(process.pid) == "T")
    expect(process, "put aside")
    process.send_signal(signal.SIGCONT)

    expect(process, "works")
    process.terminate()
    process.wait()
