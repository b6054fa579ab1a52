"""`vgpuctl top` on a pseudo-terminal: draws, resizes, filters, quits, restores the screen."""

import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from libvgpu.limits import DeviceLimit
from support import warm
from support.made_slices import make_slice
from support.terminal import RESTORED, Terminal

GIB = 1 << 30


@pytest.fixture
def run_dir(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    tmp_path.chmod(0o700)
    # Simulated machines of this user would have lines on the screen, too.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    for number, name in enumerate(("train", "serve", "idle")):
        limit = DeviceLimit("GPU-aaaaaaaa-0000", (number + 1) * GIB, core_percent=10 + number)
        who: dict[str, Any] = {"namespace": "team", "pod": name, "container": "main"}
        make_slice(tmp_path, f"{number:012x}", limit, **who)
    return tmp_path


def top(run_dir: Path, *options: str, rows: int = 24, columns: int = 140) -> Terminal:
    """Returns a terminal with `vgpuctl top` in it."""
    verb = [sys.executable, "-m", "vgpuctl", "top", f"--run-dir={run_dir}", "--interval=0.2"]
    return Terminal([*verb, *options], rows, columns)


@pytest.fixture
def terminal(run_dir: Path) -> Iterator[Terminal]:
    terminal = top(run_dir)
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
    terminal.wait("1 slice of 3 with 'serve'")
    terminal.type("\x1b")
    terminal.wait("team/train/main", "q quit")
    terminal.type("?")
    terminal.wait("part of the time for which launches were held back", without="team/train/main")
    terminal.type("q")  # back
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
    return warm.run(["-m", "vgpuctl", "top", f"--run-dir={run_dir}", *options], os.environ)


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
