"""Makers of simulated machines that are killed: whatever they leave is in nobody's way."""

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine, acquire, named, parse_spec, release

#: Where the deaths come is chance: more of them are died until enough came at a telling moment.
DEATHS, MOST_DEATHS = 50, 500
LONGEST_LIFE_SECONDS = 0.01
#: A process that has done all its imports makes machines over and over in children: one a line that
#: it reads, killed after so many seconds.
MAKERS = """
import os, signal, sys, time
from pathlib import Path
from shutil import rmtree
from libvgpu.sim import PROFILES, Machine, acquire, named, parse_spec, release
def make_by_name():
    acquire(parse_spec("t4*2@churned"))
    release(acquire(parse_spec("h100")))
    named.remove("churned")
def make_in_directory(directory=Path(sys.argv[-1])):
    Machine.create([PROFILES["t4"]], directory)
    rmtree(directory)
make = make_by_name if sys.argv[1] == "name" else make_in_directory
for line in sys.stdin:
    child = os.fork()
    while child == 0:
        make()
    time.sleep(float(line))
    os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Makers:
    """Makes machines in children that die."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAKERS, *arguments],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def kill_one_after(self, seconds: float) -> int:
        assert self.process.stdin
        assert self.process.stdout
        print(seconds, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()


def test_a_machine_by_name_survives_its_killed_makers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    chance, makers, found = random.Random(5), Makers("name"), 0
    for death in range(MOST_DEATHS):
        if death >= DEATHS and found > DEATHS // 10:
            break
        assert makers.kill_one_after(chance.random() * LONGEST_LIFE_SECONDS) == -signal.SIGKILL

        found += named.named_directory("churned").exists()
        if chance.random() < 0.5 and named.named_directory("churned").exists():
            named.remove("churned")
        machine = acquire(parse_spec("t4*2@churned"))
        assert [books.memory_used_bytes for books in machine.books()] == [0, 0]
        assert (machine.directory / "about").read_text().startswith("identifier")
        named.remove("churned")
        release(acquire(parse_spec("h100")))  # sweeps
        assert os.listdir(named.machines_root()) == [".lock"]
    makers.end()

    assert found > DEATHS // 10


def test_a_directory_can_be_used_after_its_killed_maker(tmp_path: Path) -> None:
    directory = tmp_path / "machine"
    chance, makers, halfway = random.Random(6), Makers("directory", str(directory)), 0
    for death in range(MOST_DEATHS):
        if death >= DEATHS and halfway:
            break
        assert makers.kill_one_after(chance.random() * LONGEST_LIFE_SECONDS) == -signal.SIGKILL

        there = os.listdir(directory) if directory.exists() else []
        halfway += bool(there) and "machine" not in there
        machine = (
            Machine.open(directory)
            if "machine" in there
            else Machine.create([PROFILES["t4"]], directory)
        )
        assert [books.memory_used_bytes for books in machine.books()] == [0]
        shutil.rmtree(directory)
    makers.end()

    assert halfway > 0  # else the deaths came at harmless moments only
