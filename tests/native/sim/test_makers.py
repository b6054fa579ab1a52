"""Makers of simulated machines that are killed: whatever they leave is in nobody's way.

A maker is killed before its first system call, the next one before its second, and so on until one
comes to its end: between two system calls nothing changes that others could see.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine, acquire, named, parse_spec, release
from support import IS_LONG
from support.lines import next_line

#: System calls between two deaths.
CALLS_APART = 1 if IS_LONG else 5
MOST_CALLS = 5000
#: A process that has done all its imports makes machines in children, one a line that it reads. The
#: line says before which of its system calls the child is killed; what is printed is how it ended.
MAKERS = """
import ctypes, os, signal, sys
from pathlib import Path
from shutil import rmtree
from libvgpu.sim import PROFILES, Machine, acquire, named, parse_spec, release
TRACEME, SYSCALL, SETOPTIONS, EXITKILL = 0, 24, 0x4200, 1 << 20
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
ptrace.restype = ctypes.c_long
def trace(request, pid, data=0):
    if ptrace(request, pid, 0, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
def make_by_name():
    acquire(parse_spec("t4*2@churned"))
    release(acquire(parse_spec("h100")))
    named.remove("churned")
def make_in_directory(directory=Path(sys.argv[-1])):
    Machine.create([PROFILES["t4"]], directory)
    rmtree(directory)
make = make_by_name if sys.argv[1] == "name" else make_in_directory
def live():
    trace(TRACEME, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    make()
    os._exit(0)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        live()
    status = os.waitpid(child, 0)[1]
    trace(SETOPTIONS, child, EXITKILL)
    for stop in range(2 * int(line) - 1):  # before and after each call
        if os.WIFSTOPPED(status):
            trace(SYSCALL, child)
            status = os.waitpid(child, 0)[1]
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


@contextmanager
def _makers(*arguments: str) -> Iterator["Makers"]:
    with subprocess.Popen(
        [sys.executable, "-c", MAKERS, *arguments],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        yield Makers(process)


class Makers:
    """Makes machines in children that die."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def deaths(self) -> Iterator[None]:
        """Kills one maker after the other, each a little later in its life."""
        assert self._process.stdin
        for before_call in range(1, MOST_CALLS, CALLS_APART):
            print(before_call, file=self._process.stdin, flush=True)
            status = int(next_line(self._process))
            if status == 0:
                return
            assert status == -signal.SIGKILL
            yield
        pytest.fail("no maker came to its end")


def test_a_machine_by_name_survives_its_killed_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    chance, deaths, found, halfway = random.Random(5), 0, 0, 0
    with _makers("name") as makers:
        for _ in makers.deaths():
            deaths += 1
            there = named.named_directory("churned").exists()
            found += there
            halfway += there and not named.has_machine(named.named_directory("churned"))
            if there and chance.random() < 0.5:
                named.remove("churned")
            machine = acquire(parse_spec("t4*2@churned"))
            assert [books.memory_used_bytes for books in machine.books()] == [0, 0]
            assert (machine.directory / "about").read_text().startswith("identifier")
            named.remove("churned")
            release(acquire(parse_spec("h100")))  # sweeps
            assert os.listdir(named.machines_root()) == [".lock"]

    assert 0 < halfway < found < deaths  # so they died before it was there, while and after


def test_a_directory_can_be_used_after_its_killed_maker(tmp_path: Path) -> None:
    directory = tmp_path / "machine"
    halfway = 0
    with _makers("directory", str(directory)) as makers:
        for _ in makers.deaths():
            there = os.listdir(directory) if directory.exists() else []
            halfway += bool(there) and "machine" not in there
            machine = (
                Machine.open(directory)
                if "machine" in there
                else Machine.create([PROFILES["t4"]], directory)
            )
            assert [books.memory_used_bytes for books in machine.books()] == [0]
            shutil.rmtree(directory)

    assert halfway > 0
