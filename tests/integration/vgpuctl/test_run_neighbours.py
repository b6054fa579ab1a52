"""Several `vgpuctl run` on one GPU: one runs the arbiter, the next takes over, no sum above 100."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu import region
from support import CLIENT_PATH
from support.grants import FREE, NONE, grant_mode
from support.waiting import PATIENCE_S, wait_until

TAKEOVER_S = 1.0


class NeighbourRuns:
    """`vgpuctl run` of one user on one simulated machine of two GPUs."""

    def __init__(self, home: Path) -> None:
        self.run_dir = home / "run"
        (home / "runtime").mkdir(mode=0o700)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(home / "runtime"),
            "VGPU_RUN_DIR": str(self.run_dir),
            "PYTHONPATH": CLIENT_PATH,
        }
        self.started: list[subprocess.Popen[str]] = []

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "vgpuctl", "run", "--simulate", "t4*2@box", *options]

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Starts one that stays, and returns once its command runs."""
        process = subprocess.Popen(
            [*self.command(*options), "--", "sh", "-c", "echo $VGPU_DIR; exec sleep 60"],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,  # the kernel does not stop an orphaned one, which ours may be
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().startswith(str(self.run_dir))
        return process

    def __call__(self, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command(*options), "--", "true"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

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

    def uuids(self) -> list[str]:
        """The GPUs of the slices, those made first first."""
        directories = sorted(
            (self.run_dir / "allocations").iterdir(), key=lambda d: d.stat().st_ctime_ns
        )
        return [region.read_limits(d).limits.devices[0].uuid for d in directories]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[NeighbourRuns]:
    made = NeighbourRuns(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


@pytest.mark.timing
@pytest.mark.parametrize("last_signal", [signal.SIGTERM, signal.SIGKILL, signal.SIGTSTP])
def test_one_run_has_the_gpu_and_the_next_takes_over_when_it_ends(
    runs: NeighbourRuns, last_signal: signal.Signals
) -> None:
    # GIVEN three slices of one GPU and a fourth that is alone on another
    three = [runs.start("--core", percent) for percent in ("20", "30", "50")]
    alone = runs.start("--gpu", "1", "--core", "100")
    wait_until(lambda: sum(runs.arbitrating(run) for run in three) == 1)
    (holder,) = (run for run in three if runs.arbitrating(run))
    others = [run for run in three if run is not holder]
    assert runs.arbitrating(alone) == 0

    # WHEN the one that has the lock ends, is killed, or is stopped from the keyboard
    holder.send_signal(last_signal)
    if last_signal is not signal.SIGTSTP:
        holder.wait()

    # THEN exactly one of the others has it within a second
    wait_until(lambda: any(runs.arbitrating(run) for run in others), patience_s=TAKEOVER_S)
    assert sum(runs.arbitrating(run) for run in others) == 1
    if last_signal is signal.SIGTSTP:
        wait_until(lambda: runs.arbitrating(holder) == 0)
        holder.send_signal(signal.SIGCONT)


def test_a_run_of_a_fixed_share_that_is_alone_runs_no_arbiter(runs: NeighbourRuns) -> None:
    strict = runs.start("--core", "30")
    elastic = runs.start("--gpu", "1", "--core", "30", "--compute", "elastic")

    wait_until(lambda: runs.arbitrating(elastic) == 1)
    assert runs.arbitrating(strict) == 0

    neighbour = runs.start("--core", "30")
    wait_until(lambda: runs.arbitrating(strict) + runs.arbitrating(neighbour) == 1)
    wait_until(lambda: runs.grants() == [FREE, FREE, FREE])
    neighbour.terminate()
    neighbour.wait()
    wait_until(lambda: runs.arbitrating(strict) == 0)
    wait_until(lambda: sorted(runs.grants()) == [NONE, FREE])


def test_a_sum_above_the_whole_gpu_is_refused_in_a_sentence(runs: NeighbourRuns) -> None:
    runs.start("--core", "30")
    runs.start("--core", "40", "--compute", "elastic")
    uuid = runs.uuids()[0]

    refused = runs("--core", "31")

    assert refused.returncode == 1
    said, hint = refused.stderr.splitlines()
    assert said == (
        f"vgpuctl: core 31 of GPU {uuid} cannot be given: 2 slice(s) of {runs.run_dir} have 70 % "
        "of it, so at most 30 % are allowed"
    )
    assert "--core 30 or less" in hint
    assert len(runs.uuids()) == 2, "what was refused leaves no slice"
    assert runs("--core", "30").returncode == 0
    assert runs("--gpu", "1", "--core", "100").returncode == 0
    assert runs("--compute", "off").returncode == 0
    assert runs().returncode == 1, "the default is the whole GPU"


def test_shares_come_back_when_their_run_is_killed(runs: NeighbourRuns) -> None:
    victim = runs.start("--core", "80")
    assert runs("--core", "80").returncode == 1

    victim.kill()
    victim.wait()

    assert runs("--core", "80").returncode == 0


def test_a_share_that_would_not_be_held_is_refused(runs: NeighbourRuns) -> None:
    refused = runs("--core", "30", "--compute", "off")

    assert refused.returncode == 2
    assert "--core 30 does nothing with --compute off" in refused.stderr
