"""`vgpuctl top` on a pseudo-terminal: draws, resizes, filters, quits, restores the screen."""

import fcntl
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
import pytest

from libvgpu import allocation_dirs, region
from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from support import ROOT
from support.waiting import PATIENCE_S

GIB = 1 << 30
#: Leaving the alternate screen, as xterm's terminfo has it.
RESTORED = b"\x1b[?1049l"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    for number, name in enumerate(("train", "serve", "idle")):
        directory = tmp_path / "allocations" / f"{number:012x}"
        directory.parent.mkdir(exist_ok=True)
        limit = DeviceLimit("GPU-aaaaaaaa-0000", (number + 1) * GIB, core_percent=10 + number)
        region.create(directory, ContainerLimits(directory.name, Family.VGPU, (limit,)))
        allocation_dirs.write_meta(
            directory,
            allocation_dirs.AllocationMeta(
                directory.name, "vgpu", "kubelet", 1000.0, "team", name, "main"
            ),
        )
    return tmp_path


class Terminal:
    """A terminal with `vgpuctl top` in it, and what it shows."""

    def __init__(self, run_dir: Path, *options: str, rows: int = 24, columns: int = 140) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self._size(rows, columns)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vgpuctl", "top", f"--run-dir={run_dir}", "--interval=0.2",
             *options],
            stdin=slave, stdout=slave, stderr=slave, cwd=ROOT, start_new_session=True,
            # A shell may have exported what its size was; that of the terminal counts.
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "20"},
        )  # fmt: skip
        self.slave = slave

    def _size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows: int, columns: int) -> None:
        self._size(rows, columns)
        self.screen.resize(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self) -> str:
        if select.select([self.master], [], [], 0.05)[0]:
            got = os.read(self.master, 1 << 16)
            self.bytes += got
            self.stream.feed(got)
        return "\n".join(self.screen.display)

    def wait(self, *wanted: str, without: str = "\0") -> list[str]:
        """Waits until all texts are on the screen and one is not; returns its lines."""
        give_up_s = time.monotonic() + PATIENCE_S
        shown = self.read()
        while not all(text in shown for text in wanted) or without in shown:
            assert time.monotonic() < give_up_s, f"not {wanted} on\n{shown}"
            shown = self.read()
        return shown.splitlines()

    def wait_end(self) -> int:
        give_up_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < give_up_s, "it does not end"
            self.read()
        while select.select([self.master], [], [], 0.1)[0]:
            self.read()
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(run_dir: Path) -> Iterator[Terminal]:
    terminal = Terminal(run_dir)
    try:
        yield terminal
    finally:
        terminal.close()


def test_it_draws_sorts_filters_and_quits(terminal: Terminal) -> None:
    lines = terminal.wait("team/train/main", "team/serve/main", "team/idle/main", "q quit")
    assert any("GPU GPU-aaaaaaaa" in line and "6 GiB given" in line for line in lines)
    terminal.type("n")
    terminal.wait("team/train/main")
    terminal.type("/serve")
    terminal.wait("filter: serve", "team/serve/main", without="team/train/main")
    terminal.type("\r")
    terminal.wait("1 slices of 3 with 'serve'")
    terminal.type("\x1b")
    terminal.wait("team/train/main", "q quit")
    terminal.type("q")
    assert terminal.wait_end() == 0
    assert RESTORED in terminal.bytes
    assert termios.tcgetattr(terminal.slave) == terminal.before


def test_it_follows_the_size_of_its_terminal(terminal: Terminal) -> None:
    terminal.wait("WINDOWS/s", "team/train/main")
    terminal.resize(10, 70)
    terminal.wait("team/train/main", "q quit", without="WINDOWS/s")
    terminal.resize(40, 160)
    terminal.wait("WINDOWS/s", "PROCS", "team/idle/main")


def test_a_tiny_terminal_is_no_error(terminal: Terminal) -> None:
    terminal.wait("team/train/main")
    for rows, columns in ((1, 1), (2, 10), (3, 30)):
        terminal.resize(rows, columns)
        time.sleep(0.3)
        terminal.read()
    terminal.resize(24, 140)
    terminal.wait("team/train/main", "q quit")


def test_new_slices_come_and_old_ones_go(terminal: Terminal, run_dir: Path) -> None:
    terminal.wait("team/train/main")
    shutil.rmtree(run_dir / "allocations" / f"{0:012x}")
    terminal.wait("team/serve/main", without="team/train/main")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_it_leaves_the_screen_as_it_was(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.wait("team/train/main")
    terminal.process.send_signal(number)
    assert terminal.wait_end() == 128 + number
    assert RESTORED in terminal.bytes
    assert termios.tcgetattr(terminal.slave) == terminal.before


def _top(run_dir: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "vgpuctl", "top", f"--run-dir={run_dir}", *options],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_one_frame_goes_into_a_pipe(run_dir: Path) -> None:
    done = _top(run_dir, "--once", "--interval=0.1", "--sort=name", "--filter=team")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines if "team/" in line] == [
        "team/idle/main",
        "team/serve/main",
        "team/train/main",
    ]
    assert "\x1b" not in done.stdout


def test_without_a_terminal_it_says_what_to_do(run_dir: Path) -> None:
    done = _top(run_dir)
    assert done.returncode == 2
    assert "--once" in done.stderr
