"""Several `vgpuctl run` on one GPU: one runs the arbiter, the next takes over, no sum above 100."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from libvgpu import region
from libvgpu.limits import ComputeMode, DeviceLimit
from support.lines import next_line
from support.shim.grants import FREE, NONE, grant_mode
from support.user_home import UserHome
from support.waiting import bar, wait_until

TAKEOVER_S = 1.0


class NeighbourRuns(UserHome):
    """`vgpuctl run` of one user on one simulated machine of two GPUs."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.started: list[subprocess.Popen[str]] = []

    def words(self, *options: str) -> list[str]:
        size = () if "--memory" in options else ("--memory", "1GiB")  # else the first has it all
        return ["run", "--simulate", "t4*2@box", *size, *options]

    def stay(self, *options: str) -> subprocess.Popen[str]:
        """Starts one that stays, and returns once its command runs."""
        return self.stay_as(self.words(*options))

    def stay_as(self, words: Sequence[str]) -> subprocess.Popen[str]:
        """Starts one that stays, of just these words."""
        self.started.append(self.start(*words, "--", "sh", "-c", "echo $VGPU_DIR; exec sleep 60"))
        assert next_line(self.started[-1]).startswith(str(self.run_dir))
        return self.started[-1]

    def __call__(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.vgpuctl(*self.words(*options), "--", "true")

    def arbitrating(self, process: subprocess.Popen[str]) -> int:
        """Returns how many GPUs a run has the lock of; it has that file open just as long."""
        found = 0
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            try:
                found += Path(os.readlink(link)).parent == self.run_dir / "arbiters"
            except FileNotFoundError:
                continue
        return found

    def grants(self) -> list[int]:
        """The modes of the grants of all slices' first GPUs."""
        return [grant_mode(directory) for directory in (self.run_dir / "allocations").iterdir()]

    def limits(self) -> list[DeviceLimit]:
        """The limits of the slices' first GPUs, those made first first."""
        directories = sorted(
            (self.run_dir / "allocations").iterdir(), key=lambda d: d.stat().st_ctime_ns
        )
        return [region.read_limits(d).limits.devices[0] for d in directories]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[NeighbourRuns]:
    made = NeighbourRuns(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("most_s", bar(TAKEOVER_S))
@pytest.mark.parametrize("last_signal", [signal.SIGTERM, signal.SIGKILL, signal.SIGTSTP])
def test_one_run_has_the_gpu_and_the_next_takes_over_when_it_ends(
    runs: NeighbourRuns, last_signal: signal.Signals, most_s: float
) -> None:
    # GIVEN three slices of one GPU and a fourth that is alone on another
    three = [runs.stay("--core", percent) for percent in ("20", "30", "50")]
    alone = runs.stay("--gpu", "1", "--core", "100")
    wait_until(lambda: sum(runs.arbitrating(run) for run in three) == 1)
    (holder,) = (run for run in three if runs.arbitrating(run))
    others = [run for run in three if run is not holder]
    assert runs.arbitrating(alone) == 0

    # WHEN the one that has the lock ends, is killed, or is stopped from the keyboard
    holder.send_signal(last_signal)
    if last_signal is not signal.SIGTSTP:
        holder.wait()

    # THEN exactly one of the others has it within a second
    wait_until(lambda: any(runs.arbitrating(run) for run in others), patience_s=most_s)
    assert sum(runs.arbitrating(run) for run in others) == 1
    if last_signal is signal.SIGTSTP:
        wait_until(lambda: runs.arbitrating(holder) == 0)
        holder.send_signal(signal.SIGCONT)


def test_a_run_of_a_fixed_share_that_is_alone_runs_no_arbiter(runs: NeighbourRuns) -> None:
    strict = runs.stay("--core", "30")
    elastic = runs.stay("--gpu", "1", "--core", "30", "--compute", "elastic")

    wait_until(lambda: runs.arbitrating(elastic) == 1)
    assert runs.arbitrating(strict) == 0

    neighbour = runs.stay("--core", "30")
    wait_until(lambda: runs.arbitrating(strict) + runs.arbitrating(neighbour) == 1)
    wait_until(lambda: runs.grants() == [FREE, FREE, FREE])
    neighbour.terminate()
    neighbour.wait()
    wait_until(lambda: runs.arbitrating(strict) == 0)
    wait_until(lambda: sorted(runs.grants()) == [NONE, FREE])


def test_a_sum_above_the_whole_gpu_is_refused_in_a_sentence(runs: NeighbourRuns) -> None:
    runs.stay("--core", "30")
    runs.stay("--core", "40", "--compute", "elastic")
    uuid = runs.limits()[0].uuid

    refused = runs("--core", "31")

    assert refused.returncode == 1
    said, hint = refused.stderr.splitlines()
    assert said == (
        f"vgpuctl: core 31 of GPU {uuid} cannot be given: 2 slices of {runs.run_dir} have 70 % "
        "of it, so at most 30 % are allowed"
    )
    assert "--core 30 or less" in hint
    assert len(runs.limits()) == 2, "what was refused leaves no slice"
    assert runs("--core", "30").returncode == 0
    assert runs("--gpu", "1", "--core", "100").returncode == 0
    assert runs("--compute", "off").returncode == 0


def test_runs_without_a_core_share_what_the_others_leave(runs: NeighbourRuns) -> None:
    def vgpuctl(*words: str) -> str:
        done = runs.vgpuctl(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    # GIVEN two of them next to one that has all of the GPU's compute
    runs.stay("--memory", "6GiB", "--name", "first")
    runs.stay("--memory", "6GiB", "--name", "second")
    runs.stay("--core", "100", "--name", "whole")

    # WHEN they are looked at
    rows = {row["name"]: row for row in json.loads(vgpuctl("ps", "-o", "json"))}
    (gpu, _) = json.loads(vgpuctl("status", "-o", "json"))

    # THEN all compute is the one's, and the others say that none is theirs
    assert {name: row["core_percent"] for name, row in rows.items()} == {
        "first": 0,
        "second": 0,
        "whole": 100,
    }
    assert [row["compute"] for row in rows.values()] == ["elastic", "elastic", "strict"]
    assert (gpu["core_allocated_percent"], gpu["core_free_percent"]) == (100, 0)
    assert [line.split().count("rest") for line in vgpuctl("ps").splitlines()] == [0, 1, 1, 0]
    assert "none reserved, what others leave over" in vgpuctl("describe", "first")

    # AND each can be given some of it, and goes back
    vgpuctl("set", "whole", "--core", "60")
    assert "core rest 40% now" in " ".join(vgpuctl("set", "first", "--core", "40%").split())
    assert "core 40% rest now" in " ".join(vgpuctl("set", "first", "--clear").split())


def test_a_run_without_any_limit_has_the_whole_gpu(runs: NeighbourRuns) -> None:
    runs.stay_as(["run", "--simulate", "t4*2@box"])

    (limit,) = runs.limits()
    assert (limit.core_percent, limit.reserved_percent) == (100, 100)
    assert limit.compute_mode is ComputeMode.STRICT


def test_a_strict_share_needs_to_be_said(runs: NeighbourRuns) -> None:
    refused = runs("--memory", "1GiB", "--compute", "strict")

    assert refused.returncode == 2
    assert "--compute strict holds a share, and without --core there is none" in refused.stderr


def test_shares_come_back_when_their_run_is_killed(runs: NeighbourRuns) -> None:
    victim = runs.stay("--core", "80")
    assert runs("--core", "80").returncode == 1

    victim.kill()
    victim.wait()

    assert runs("--core", "80").returncode == 0


def test_a_share_that_would_not_be_held_is_refused(runs: NeighbourRuns) -> None:
    refused = runs("--core", "30", "--compute", "off")

    assert refused.returncode == 2
    assert "--core 30 does nothing with --compute off" in refused.stderr


def test_memory_above_the_whole_gpu_is_refused_in_a_sentence_that_says_what_is_left(
    runs: NeighbourRuns,
) -> None:
    runs.stay("--core", "10", "--memory", "4GiB")
    victim = runs.stay("--core", "10", "--memory", "10GiB")
    uuid = runs.limits()[0].uuid

    refused = runs("--core", "10", "--memory", "8GiB")

    assert refused.returncode == 1
    said, hint = refused.stderr.splitlines()
    assert said.startswith(f"vgpuctl: memory 8 GiB (8589934592 bytes) of GPU {uuid} cannot be")
    assert f"2 slices of {runs.run_dir} have 14 GiB of its " in said
    words = hint.split("--memory ")[1].split()[0]  # bytes, with their unit
    left = int(words.removesuffix("B"))
    assert left == 1 << 30, "of a T4's 15 GiB"
    assert f"at most 1 GiB ({left} bytes) are allowed" in said
    assert runs("--core", "10", "--memory", f"{left + 1}B").returncode == 1
    assert runs("--core", "10", "--memory", words).returncode == 0
    assert runs("--gpu", "1", "--core", "10", "--memory", "8GiB").returncode == 0
    assert len(runs.limits()) == 2, "what was refused leaves no slice"

    victim.kill()
    victim.wait()

    assert runs("--core", "10", "--memory", "8GiB").returncode == 0, "a killed one has nothing"


def test_a_run_without_a_limit_has_what_the_others_left(runs: NeighbourRuns) -> None:
    runs.stay("--core", "10", "--memory", "4GiB")
    runs.stay_as(["run", "--simulate", "t4*2@box", "--core", "10"])

    limits = [limit.memory_limit_bytes for limit in runs.limits()]
    refused = runs("--core", "10", "--memory", "1MiB")

    assert 4 << 30 in limits and (10 << 30) < max(limits) < (12 << 30)
    assert refused.returncode == 1 and "so none is left" in refused.stderr


def test_a_name_is_one_live_runs_and_the_target_of_other_verbs(runs: NeighbourRuns) -> None:
    first = runs.stay("--name", "train", "--core", "40")

    taken = runs("--name", "train", "--core", "10")
    assert taken.returncode == 1
    assert "--name 'train' is the name of run run-" in taken.stderr
    listed = runs.vgpuctl("ps").stdout
    assert " train " in listed and "sleep" not in listed
    assert runs.vgpuctl("set", "train", "--core", "20").returncode == 0
    described = runs.vgpuctl("describe", "train").stdout
    assert "train" in described and "20 %" in described
    first.kill()
    first.wait()
    assert runs("--name", "train", "--core", "10").returncode == 0, "its owner is dead"


def test_variables_reach_the_command_and_never_the_slice(runs: NeighbourRuns) -> None:
    words = runs.words("--env", "A=b=c", "--env", "EMPTY=")
    said = runs.vgpuctl(*words, "--", "sh", "-c", 'echo "$A|$EMPTY|"')

    assert said.stdout == "b=c||\n"
    for name in ("VGPU_DIR", "CUDA_MPS_PIPE_DIRECTORY", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES"):
        refused = runs("--env", f"{name}=/elsewhere")
        assert refused.returncode == 2
        assert f"--env {name} cannot be set" in refused.stderr
    assert runs("--env", "novalue").returncode == 2
