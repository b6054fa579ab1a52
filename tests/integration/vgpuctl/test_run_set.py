"""`vgpuctl set` on a `vgpuctl run`: no agent, the program keeps running, the same promises."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.shim.talker import Talker
from support.user_home import UserHome

GIB = 1 << 30
OUT_OF_MEMORY = 2


class SetRuns(UserHome):
    """`vgpuctl` of one user, with a simulated machine of one T4 (16 GiB)."""

    def __init__(self, home: Path, program: Path) -> None:
        super().__init__(home)
        self.program = program
        self.started: list[Talker] = []

    def talk(self, *options: str) -> Talker:
        command = [sys.executable, "-m", "vgpuctl", "run", "--simulate", "t4@box", *options, "--"]
        self.started.append(Talker([*command, str(self.program)], self.environment))
        assert self.started[-1].ask("init") == 0
        return self.started[-1]

    def names(self) -> list[str]:
        return [row["allocation"] for row in json.loads(self.vgpuctl("ps", "-o", "json").stdout)]


@pytest.fixture
def runs(tmp_path: Path, life_program: Path) -> Iterator[SetRuns]:
    made = SetRuns(tmp_path, life_program)
    yield made
    for program in made.started:
        program.end()


def test_a_running_program_is_lowered_and_set_back(runs: SetRuns) -> None:
    program = runs.talk("--memory", "8GiB", "--core", "50")
    assert program.ask(f"alloc {GIB}") == 0

    lowered = runs.vgpuctl("set", "run-", "--memory", "2GiB", "--core", "10", "-o", "json")

    assert lowered.returncode == 0, lowered.stderr
    rows = {row["value"]: row for row in json.loads(lowered.stdout)}
    assert (rows["memory_bytes"]["old"], rows["memory_bytes"]["new"]) == (8 * GIB, 2 * GIB)
    assert (rows["core_percent"]["old"], rows["core_percent"]["new"]) == (50, 10)
    assert (rows["compute"]["changed"], rows["compute"]["new"]) == (False, "strict")
    assert program.ask(f"alloc {2 * GIB}") == OUT_OF_MEMORY
    assert runs.vgpuctl("set", "run-", "--clear").returncode == 0
    assert program.ask(f"alloc {2 * GIB}") == 0


def test_it_rises_to_what_its_owner_could_ask_for_and_no_further(runs: SetRuns) -> None:
    program = runs.talk("--memory", "1GiB", "--core", "50")
    (mine,) = runs.names()
    runs.talk("--memory", "1GiB", "--core", "30")
    assert program.ask(f"alloc {4 * GIB}") == OUT_OF_MEMORY

    raised = runs.vgpuctl("set", mine, "--memory", "6GiB", "--core", "70")
    share = runs.vgpuctl("set", mine, "--core", "71")
    memory = runs.vgpuctl("set", mine, "--memory", "64GiB")
    ambiguous = runs.vgpuctl("set", "run-", "--core", "1")

    assert raised.returncode == 0, raised.stderr
    assert program.ask(f"alloc {4 * GIB}") == 0
    assert share.returncode == memory.returncode == ambiguous.returncode == 1
    assert "at most 70 % are allowed" in share.stderr
    assert "memory 64 GiB" in memory.stderr and "at most 1" in memory.stderr
    assert "may mean 2 of them" in ambiguous.stderr
