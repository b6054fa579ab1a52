"""An unmodified CUDA client under `vgpuctl run` sees and gets its slice, and nothing stays."""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from libvgpu.sim import PROFILES, Machine
from support import IS_LONG
from support.lines import expect, next_line
from support.user_home import UserHome
from support.waiting import PATIENCE_S, wait_until

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

MIB, GIB = 1 << 20, 1 << 30
PIECE_BYTES = 64 * MIB
OUT_OF_MEMORY = 2

PRELUDE = """
import json, sys, time
from cuda.bindings import driver as cu
def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]
ok(cu.cuInit(0))
device = ok(cu.cuDeviceGet(0))
context = ok(cu.cuDevicePrimaryCtxRetain(device))
ok(cu.cuCtxSetCurrent(context))
"""
MEMORY_CLIENT = (
    PRELUDE
    + """
piece = 64 << 20
free, total = ok(cu.cuMemGetInfo())
pieces = []
while True:
    code, address = cu.cuMemAlloc(piece)
    if int(code):
        break
    pieces.append(address)
ok(cu.cuMemFree(pieces.pop()))
again, address = cu.cuMemAlloc(piece)
more, _ = cu.cuMemAlloc(piece)
print(json.dumps({"free": free, "total": total, "got": len(pieces) + 1, "refusal": int(code),
                  "again": int(again), "more": int(more),
                  "device_total": ok(cu.cuDeviceTotalMem(device)),
                  "devices": ok(cu.cuDeviceGetCount())}))
"""
)
HOLDING_CLIENT = (
    PRELUDE
    + """
ok(cu.cuMemAlloc(256 << 20))
code, _ = cu.cuMemAlloc(8 << 30)
print(int(code), flush=True)
time.sleep(60)
"""
)
CLOSING_CLIENT = (
    PRELUDE
    + """
import os
ok(cu.cuMemAlloc(256 << 20))
os.closerange(3, 1024)
print("holds", flush=True)
time.sleep(60)
"""
)
SHARE_CLIENT = """
import json, sys
from support.shim.cuda_client import *
check(driver.cuInit(0))
open_context()
spinner = Spinner(2_000_000)
spinner.share_percent(1.0)
print(json.dumps({"share": spinner.share_percent(float(sys.argv[1]))}))
"""


class Ctl(UserHome):
    """`vgpuctl` with its run directory and simulated machines in one place."""

    def run_client(self, options: list[str], code: str, *arguments: str) -> dict[str, int]:
        result = self.vgpuctl("run", *options, "--", sys.executable, "-c", code, *arguments)
        assert result.returncode == 0, result.stderr
        answer: dict[str, int] = json.loads(result.stdout)
        return answer

    def rows(self, *verb: str) -> list[dict[str, Any]]:
        result = self.vgpuctl(*verb, "-o", "json")
        assert result.returncode == 0, result.stderr
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    def slices(self) -> list[str]:
        return [
            p.name for name in ("allocations", "owners") for p in (self.run_dir / name).glob("*")
        ]

    def machine_names(self) -> list[str]:
        machines = Path(self.environment["XDG_RUNTIME_DIR"]) / "vgpu-sim"
        return sorted(p.name for p in machines.glob("*") if p.is_dir())


@pytest.fixture
def ctl(tmp_path: Path) -> Ctl:
    return Ctl(tmp_path)


def test_a_run_knows_what_a_context_takes_from_those_before_it(ctl: Ctl, tmp_path: Path) -> None:
    """On GPUs that the driver lists; those of ``--simulate`` say it themselves."""
    machine = Machine.create([PROFILES["h100-80g"]], tmp_path / "machine")
    told = PRELUDE + "import os; from pathlib import Path; from libvgpu.region import read_limits\n"
    told += "print(read_limits(Path(os.environ['VGPU_DIR'])).limits.devices[0].context_bytes)"
    command = ["run", "--memory", "4GiB", "--", sys.executable, "-c", told]

    answers = [ctl.vgpuctl(*command, **machine.environment({})) for _ in range(2)]

    assert [answer.stderr for answer in answers] == ["", ""]
    known_bytes = machine.devices[0].profile.context_bytes
    assert [answer.stdout for answer in answers] == ["0\n", f"{known_bytes}\n"]


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("memory_bytes", [GIB, 3 * GIB + 12345])
def test_exactly_the_pieces_that_fit_are_granted(ctl: Ctl, memory_bytes: int) -> None:
    options = ["--simulate", "h100", "--memory", f"{memory_bytes}B", "--core", "50"]

    seen = ctl.run_client(options, MEMORY_CLIENT)

    assert seen["total"] == seen["device_total"] == memory_bytes
    assert 0 < seen["free"] < memory_bytes
    assert seen["got"] == seen["free"] // PIECE_BYTES
    assert seen["refusal"] == OUT_OF_MEMORY
    assert (seen["again"], seen["more"]) == (0, OUT_OF_MEMORY)
    assert ctl.slices() == []
    assert ctl.machine_names() == []


def test_the_chosen_gpu_is_the_programs_first_and_only(ctl: Ctl) -> None:
    options = ["--simulate", "t4,h100", "--gpu", "1", "--memory", "20GiB"]

    seen = ctl.run_client(options, MEMORY_CLIENT)

    assert (seen["devices"], seen["total"]) == (1, 20 * GIB)  # a T4 has 15 GiB


def test_without_a_memory_option_it_is_all_of_the_gpus(ctl: Ctl) -> None:
    whole = ctl.run_client(["--simulate", "t4"], MEMORY_CLIENT)

    assert whole["total"] == PROFILES["t4"].memory_bytes
    assert whole["got"] == whole["free"] // PIECE_BYTES


def test_the_status_is_the_commands_and_nothing_stays(ctl: Ctl) -> None:
    for script, status in (("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143)):
        result = ctl.vgpuctl("run", "--simulate", "h100", "--", "sh", "-c", script)

        assert result.returncode == status, result.stderr
        assert ctl.slices() == []
        assert ctl.machine_names() == []


def test_another_preload_library_stays_behind_the_shim(ctl: Ctl) -> None:
    result = ctl.vgpuctl(
        "run", "--simulate", "h100", "--", "sh", "-c", "echo $LD_PRELOAD", LD_PRELOAD="libc.so.6"
    )

    first, second = result.stdout.strip().split(":")
    assert first.endswith("/libvgpu.so")
    assert second == "libc.so.6"


def test_ps_and_status_show_the_running_process(ctl: Ctl) -> None:
    # GIVEN a process that holds 256 MiB of 1 GiB and was refused 8 GiB
    options = ("--simulate", "h100@shown", "--memory", "1GiB", "--core", "30")
    holder = ctl.start("run", *options, "--", sys.executable, "-c", HOLDING_CLIENT)
    try:
        assert next_line(holder) == str(OUT_OF_MEMORY)

        # WHEN others look
        (row,) = ctl.rows("ps")
        (gpu,) = ctl.rows("status")
        (machine,) = ctl.rows("sim", "list")
        removal = ctl.vgpuctl("sim", "rm", "shown")

        # THEN they see it
        assert (row["source"], row["state"], row["core_percent"]) == ("run", "running", 30)
        assert row["memory_limit_bytes"] == GIB
        assert isinstance(row["memory_used_bytes"], int)
        assert 256 * MIB < row["memory_used_bytes"] < GIB
        assert row["refused_count"] == 1
        assert isinstance(row["last_refusal"], dict)
        assert row["last_refusal"]["asked_bytes"] == 8 * GIB
        assert (gpu["source"], gpu["containers"]) == ("simulated", 1)
        assert gpu["memory_allocated_bytes"] == GIB
        assert gpu["memory_used_bytes"] == row["memory_used_bytes"]
        assert machine["name"] == "shown"
        assert removal.returncode == 1
        assert "in use by process" in removal.stderr
    finally:
        holder.terminate()
        assert holder.wait(timeout=PATIENCE_S) == 128 + signal.SIGTERM

    # AND afterwards the slice is gone, the named machine stays until it is removed
    assert ctl.slices() == []
    assert ctl.machine_names() == ["@shown"]
    assert ctl.vgpuctl("sim", "rm", "shown").returncode == 0
    assert ctl.machine_names() == []


def test_runs_side_by_side_are_seen_though_they_close_all_descriptors(ctl: Ctl) -> None:
    # GIVEN two runs on one machine, whose programs have closed their descriptors
    options = ("--simulate", "h100@both", "--memory", "1GiB")
    runs = [
        ctl.start("run", *options, "--", sys.executable, "-c", CLOSING_CLIENT) for _ in range(2)
    ]
    try:
        for each in runs:
            expect(each, "holds")

        # WHEN others look
        (held, other), on_the_gpu = held_by_runs_and_on_the_gpu(ctl)

        # THEN slices and simulated GPU have what both hold, and what is left when one is gone
        assert 256 * MIB < held < GIB and (other, on_the_gpu) == (held, 2 * held)
        runs[1].kill()
        wait_until(lambda: held_by_runs_and_on_the_gpu(ctl) == ([held], held))
    finally:
        for each in runs:
            each.terminate()
            each.wait(timeout=PATIENCE_S)


def held_by_runs_and_on_the_gpu(ctl: Ctl) -> tuple[list[int], int]:
    """What each run with a living process holds, and what is taken of the simulated GPU."""
    held = [row["memory_used_bytes"] for row in ctl.rows("ps") if row["state"] == "running"]
    (machine,) = ctl.rows("sim", "list")
    (gpu,) = machine["gpus"]
    return held, gpu["memory_used_bytes"]


def test_a_killed_run_ends_its_command_and_the_next_sweeps_its_leavings(ctl: Ctl) -> None:
    # GIVEN a running slice on an unnamed machine
    victim = ctl.start("run", "--simulate", "h100", "--", "sh", "-c", "echo $$; exec sleep 60")
    child = int(next_line(victim))
    assert len(ctl.slices()) == 2

    # WHEN vgpuctl is killed
    victim.kill()
    victim.wait()

    # THEN its command ends at once, ps calls the slice abandoned
    wait_until(lambda: _is_gone(child))
    (row,) = ctl.rows("ps")
    assert row["state"] == "abandoned"
    assert len(ctl.machine_names()) == 1

    # AND the next run leaves nothing of it
    assert ctl.vgpuctl("run", "--simulate", "h100", "--", "true").returncode == 0
    assert ctl.slices() == []
    assert ctl.machine_names() == []


def test_without_simulate_the_gpus_are_those_of_the_driver(ctl: Ctl) -> None:
    # GIVEN a machine whose driver happens to be the simulated one
    on_the_machine = ["sim", "run", "t4,h100", "--", sys.executable, "-m", "vgpuctl"]

    # WHEN the same commands run on it as on any node
    options = ["--gpu", "1", "--memory", "2GiB", "--", sys.executable, "-c", MEMORY_CLIENT]
    run = ctl.vgpuctl(*on_the_machine, "run", *options)
    status = ctl.vgpuctl(*on_the_machine, "status", "-o", "json")

    # THEN the slice is cut from the second GPU that NVML lists
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    assert (seen["devices"], seen["total"]) == (1, 2 * GIB)
    assert seen["got"] == seen["free"] // PIECE_BYTES
    rows = json.loads(status.stdout)
    assert [row["index"] for row in rows] == [0, 1]
    assert rows[1]["memory_total_bytes"] == PROFILES["h100-80g"].memory_bytes
    assert ctl.slices() == []


@pytest.mark.timing
def test_the_measured_share_is_the_one_asked_for(ctl: Ctl) -> None:
    options = ["--simulate", "h100", "--memory", "1GiB", "--core", "50"]

    seen = ctl.run_client(options, SHARE_CLIENT, "4" if IS_LONG else "2")

    assert seen["share"] == pytest.approx(50, abs=3)


@pytest.mark.timing
def test_ps_answers_at_once(ctl: Ctl) -> None:
    most_seconds, tries = 0.25, 5
    took = []
    for _ in range(tries):
        start = time.monotonic()
        assert ctl.vgpuctl("ps").returncode == 0
        took.append(time.monotonic() - start)

    assert min(took) <= most_seconds
