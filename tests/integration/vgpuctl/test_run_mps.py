"""`vgpuctl run --mps`: runs of one GPU are clients of one MPS server, and the last one ends it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from libvgpu import region
from libvgpu.artifacts import SIM_BINARY_DIR
from libvgpu.errors import MpsError, UsageError
from libvgpu.limits import Family
from libvgpu.sim import PROFILES, Machine
from support.lines import next_line
from support.sim.mps_control import TOOL, Control, is_gone
from support.user_home import UserHome
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.run import mps_server

# Says when it is a client, and stays until its input ends.
CLIENT = """
import os, sys
from cuda.bindings import driver as cuda
assert cuda.cuInit(0)[0] == 0
enabled = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED
_, context = cuda.cuDevicePrimaryCtxRetain(0)
_, mps = cuda.cuDeviceGetAttribute(enabled, 0)
percent = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
print(os.getpid(), mps, percent, os.environ["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
sys.stdin.read()
print(*cuda.cuCtxSetCurrent(context), *cuda.cuMemAlloc(1 << 20)[:1], flush=True)
"""


class MpsRuns(UserHome):
    """`vgpuctl run` of one user on one simulated machine of two GPUs."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.started: list[subprocess.Popen[str]] = []

    def command(self, *options: str) -> list[str]:
        size = () if "--memory" in options else ("--memory", "1GiB")  # else the first has it all
        return ["run", "--simulate", "t4*2@box", *size, *options]

    def stay(self, *options: str) -> tuple[subprocess.Popen[str], list[str]]:
        """Starts one whose program stays; returns it and what the program said."""
        words = self.command("--mps", *options)
        process = self.start(*words, "--", sys.executable, "-c", CLIENT)
        self.started.append(process)
        return process, next_line(process).split()

    def end(self, process: subprocess.Popen[str]) -> str:
        """Lets a program end; returns what it said of its context."""
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        return said

    def __call__(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        shown = ("sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY")
        return self.vgpuctl(*self.command(*options), "--", *shown, **variables)

    def daemons(self) -> list[int]:
        """Returns the daemons that runs have started here, by their own word."""
        return [int(path.read_text()) for path in self.run_dir.glob("run-mps/*/pid")]

    def leavings(self) -> list[Path]:
        root = self.run_dir / "run-mps"
        return list(root.iterdir()) if root.is_dir() else []


@pytest.fixture
def runs(short_path: Path) -> Iterator[MpsRuns]:
    made = MpsRuns(short_path)  # `limits` has room for 127 bytes of a pipe directory
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
    for pid in made.daemons():
        for each in (*psutil.Process(pid).children(), psutil.Process(pid)):
            each.kill()


@pytest.fixture
def control(short_path: Path, tmp_path: Path) -> Control:
    machine = Machine.create([PROFILES["t4"]] * 2, tmp_path / "machine")
    return Control(machine, short_path)


def test_runs_of_a_gpu_share_a_server_and_the_last_one_ends_it(runs: MpsRuns) -> None:
    first, said = runs.stay("--core", "30")
    second, said_too = runs.stay("--core", "70")
    other, _ = runs.stay("--gpu", "1")
    (pipe,) = {said[3], said_too[3]}
    assert (said[1:3], said_too[1:3]) == (["1", "None"], ["1", "None"])
    assert len(runs.daemons()) == 2  # one for each GPU
    daemon = int((Path(pipe).parent / "pid").read_text())
    limits = [region.read_limits(path).limits for path in (runs.run_dir / "allocations").iterdir()]
    assert {each.family for each in limits} == {Family.VGPU}
    (of_first,) = [each.devices[0] for each in limits if each.devices[0].core_percent == 30]
    assert (of_first.mps_pipe_directory, of_first.mps_thread_percentage) == (pipe, 0)

    runs.end(first)
    assert not is_gone(daemon)
    assert "CUDA_SUCCESS" in runs.end(second)  # it works although the first one has left
    assert is_gone(daemon)
    assert [path.name for path in runs.leavings()] != []  # of the other GPU's
    runs.end(other)
    assert runs.leavings() == []


def test_ps_and_doctor_say_that_they_share_a_server(runs: MpsRuns) -> None:
    process, (_, _, _, pipe) = runs.stay("--core", "30")
    uuid = Path(pipe).parent.name

    def said(*words: str) -> Any:
        return json.loads(runs.vgpuctl(*words, "-o", "json").stdout)

    assert [row["concurrency"] for row in said("ps")] == ["mps"]
    doctor = ("doctor", "--run-dir", str(runs.run_dir))
    (found,) = [each for each in said(*doctor) if each["check"] == "fault-domain"]
    assert found["level"] == "ok"
    assert f"GPU {uuid} is one fault domain" in found["message"]
    assert "(1 now)" in found["message"]
    runs.end(process)
    assert not [each for each in said(*doctor) if each["check"] == "fault-domain"]


def test_without_the_option_nothing_is_of_mps(runs: MpsRuns) -> None:
    done = runs("--core", "30")

    assert (done.returncode, done.stdout) == (0, "\n")
    assert not (runs.run_dir / "run-mps").exists()


def test_a_daemon_that_is_named_is_used_and_stays(runs: MpsRuns) -> None:
    machine = runs.environment | {"CUDA_MPS_PIPE_DIRECTORY": str(runs.run_dir.parent / "pipe")}
    begun = subprocess.Popen(
        [sys.executable, "-m", "vgpuctl", "sim", "run", "t4*2@box", "--", TOOL, "-f"],
        env=machine | {"CUDA_MPS_LOG_DIRECTORY": str(runs.run_dir.parent / "log")},
        stdout=subprocess.DEVNULL,
    )
    try:
        named = machine["CUDA_MPS_PIPE_DIRECTORY"]
        wait_until((Path(named) / f"{TOOL}.pid").exists, "the daemon is there")

        done = runs("--mps", "--gpu", "0", "--gpu", "1", CUDA_MPS_PIPE_DIRECTORY=named)

        assert (done.returncode, done.stdout.strip()) == (0, named), done.stderr
        assert begun.poll() is None
        assert runs.leavings() == []
    finally:
        begun.send_signal(signal.SIGTERM)
        begun.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("options", "variables", "status", "sentence"),
    [
        ((), {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere/pipe"}, 1,
         "CUDA_MPS_PIPE_DIRECTORY is '/nowhere/pipe', and no MPS daemon answers there"),
        (("--gpu", "0", "--gpu", "1"), {}, 2,
         "--mps with 2 GPUs needs a daemon that serves them all"),
    ],
    ids=["nobody answers", "two GPUs"],
)  # fmt: skip
def test_what_cannot_be_is_said_and_nothing_is_started(
    runs: MpsRuns, options: tuple[str, ...], variables: dict[str, str], status: int, sentence: str
) -> None:
    done = runs("--mps", *options, **variables)

    assert done.returncode == status
    assert done.stdout == ""
    assert sentence in done.stderr
    assert runs.leavings() == []


def test_a_gpu_that_another_server_has_is_said_and_nothing_stays(
    control: Control, runs: MpsRuns
) -> None:
    with control.running():
        control.ask(f"start_server -uid {os.geteuid()}")
        uuid = control.machine.devices[0].uuid
        base = control.machine.environment(os.environ)
        with (
            pytest.raises(MpsError, match="another MPS server serves"),
            mps_server.served(runs.run_dir, [uuid], base, simulated=True),
        ):
            pass
    assert runs.leavings() == []


def test_without_the_tool_the_sentence_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(MpsError, match=f"--mps needs {TOOL}, which is not on PATH") as refusal,
        mps_server.served(tmp_path, ["GPU-1"], {"PATH": str(tmp_path)}, simulated=False),
    ):
        pass
    assert refusal.value.hint == "install the driver's MPS tools, or leave --mps out"


def test_the_default_directory_counts_where_nothing_is_simulated(
    control: Control, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = control.env()["CUDA_MPS_PIPE_DIRECTORY"]
    monkeypatch.setattr(mps_server, "DEFAULT_PIPE_DIRECTORY", default)
    base = control.machine.environment({"PATH": f"{SIM_BINARY_DIR}:{os.environ['PATH']}"})
    uuids = [device.uuid for device in control.machine.devices]

    with control.running(), mps_server.served(tmp_path, uuids, base, simulated=False) as pipe:
        assert pipe == default
    with (
        pytest.raises(UsageError, match="--mps with 2 GPUs"),  # nobody answers there any more
        mps_server.served(tmp_path, uuids, base, simulated=False),
    ):
        pass
    assert not (tmp_path / "run-mps").exists()


def test_what_a_killed_run_left_is_ended_by_the_next(runs: MpsRuns) -> None:
    process, _ = runs.stay()
    (daemon,) = runs.daemons()
    process.kill()
    process.wait(PATIENCE_S)
    assert not is_gone(daemon)

    assert runs().returncode == 0  # one that has no need of MPS itself

    wait_until(lambda: is_gone(daemon), "its daemon has ended")
    assert runs.leavings() == []


def test_a_process_that_has_the_daemons_number_by_now_is_left_alone(runs: MpsRuns) -> None:
    directory = runs.run_dir / "run-mps" / "GPU-1"
    directory.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (directory / "pid").write_text(str(stranger.pid))

        mps_server.sweep(runs.run_dir)

        assert stranger.poll() is None
        stranger.kill()
    assert runs.leavings() == []


def test_the_daemon_has_no_signals_held_back(runs: MpsRuns) -> None:
    process, _ = runs.stay()
    (daemon,) = runs.daemons()

    status = Path(f"/proc/{daemon}/status").read_text()

    assert "SigBlk:\t0000000000000000" in status
    runs.end(process)
