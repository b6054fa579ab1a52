"""`vgpuctl sim`: injecting faults, listing them, and machines that cannot be used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from libvgpu.sim import Machine, acquire, machines_root, parse_spec
from support import CLIENT_PATH
from support.ctl_here import run_here
from support.ended import run_to_end
from support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def box() -> Machine:
    return acquire(parse_spec("t4*2@box"))


def sim(*arguments: str) -> subprocess.CompletedProcess[str]:
    if arguments[0] != "run":
        return run_here("sim", *arguments)
    return run_to_end(
        [sys.executable, "-m", "vgpuctl", "sim", *arguments],
        env={**os.environ, "PYTHONPATH": CLIENT_PATH},
    )


def done(*arguments: str) -> str:
    result = sim(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_each_fault_is_said_listed_and_cleared(box: Machine) -> None:
    assert "simulated machine @box" in done("inject", "@box/1", "xid", "48")
    assert "lost" in done("inject", "@box/0", "lost")
    assert "7 allocations" in done("inject", "@box/1", "fail-allocations", "7")
    assert "30 us" in done("inject", "@box", "delay", "30")
    assert "3 driver calls answer 700" in done("inject", "@box", "code", "700", "--count", "3")
    memory = "nvmlDeviceGetMemoryInfo"
    assert "every function of NVML hangs" in done("inject", "@box/0", "nvml", "all", "hang")
    refused = done("inject", "@box/1", "nvml", memory, "NVML_ERROR_NOT_SUPPORTED")
    assert f"{memory} answers 3" in refused
    assert "1 corrected" in done("inject", "@box/0", "ecc", "single")

    first, second = box.device_faults(0), box.device_faults(1)
    assert (first.lost, second.lost) == (True, False)
    assert (second.broken_code, second.failing_allocations) == (214, 7)
    assert (box.call_faults().delay_ns, box.call_faults().code_count) == (30_000, 3)

    table = done("list")
    for words in (
        "13.0",
        "GPU 0 lost",
        f"GPU 1 {memory} answers 3",
        "GPU 1 fails 7",
        "30 us slower",
        "3 calls answer 700",
    ):
        assert words in table
    (row,) = json.loads(done("list", "-o", "json"))
    assert row["cuda_version"] == "13.0"
    assert row["gpus"][0]["ecc_corrected"] == 1

    done("inject", "@box/0", "lost", "--recover")
    assert not box.device_faults(0).lost
    done("inject", "@box", "clear")
    assert box.device_faults(1).failing_allocations == 0
    assert "GPU 0" not in done("list")


def test_codes_have_names(box: Machine) -> None:
    done("inject", "@box", "code", "CUDA_ERROR_ECC_UNCORRECTABLE")

    assert (box.call_faults().code, box.call_faults().code_count) == (214, 1)


def test_clearing_one_gpu_leaves_the_other(box: Machine) -> None:
    done("inject", "@box/0", "lost")
    done("inject", "@box/1", "lost")

    done("inject", "@box/0", "clear")

    assert [box.device_faults(index).lost for index in (0, 1)] == [False, True]


def test_the_only_machine_need_not_be_named(tmp_path: Path) -> None:
    machine = acquire(parse_spec("t4@one"))
    done("inject", "delay", "5")
    assert machine.call_faults().delay_ns == 5000
    done("inject", "/0", "fail-allocations", "1")
    assert machine.device_faults(0).failing_allocations == 1

    done("inject", str(machine.directory), "delay", "6")
    assert machine.call_faults().delay_ns == 6000

    acquire(parse_spec("t4@other"))
    result = sim("inject", "delay", "5")
    assert result.returncode == 2
    assert "@one, @other" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["@box", "xid", "48"], ["2 GPUs", "/0 to /1"]),
        (["@box/2", "xid", "48"], ["'@box/2'", "0 to 1"]),
        (["@box/0", "xid", "many"], ["'many'", "1 to 65536"]),
        (["@box/0", "xid", "0"], ["'0'", "1 to 65536"]),
        (["@box/0", "delay", "5"], ["leave off /0"]),
        (["@box", "delay", "-5"], ["-5"]),
        (["@box", "delay", "10000001"], ["'10000001'", "0 to 10000000"]),
        (["@box", "code", "1000"], ["'1000'", "CUDA_ERROR_ILLEGAL_ADDRESS"]),
        (["@box", "code", "0"], ["'0'"]),
        (["@box", "code", "CUDA_ERROR_OF_MINE"], ["'CUDA_ERROR_OF_MINE'"]),
        (["@box", "code", "700", "--count", "x"], ["'x'", "0 to 1000000"]),
        (["@box", "code", "700", "--count", "1" * 4301], ["0 to 1000000"]),
        (["@box", "code", "1" * 4301], ["1111"]),
        (["@box", "nvml", "all", "hang"], ["2 GPUs"]),
        (["@box/0", "nvml", "nvmlX", "hang"], ["'nvmlX'", "nvmlDeviceGetMemoryInfo, or all"]),
        (["@box/0", "nvml", "all", "0"], ["'0'", "hang", "NVML_ERROR_NOT_SUPPORTED"]),
        (["@box/0", "ecc", "triple"], ["'triple'", "single", "double"]),
        (["@box/0", "lost", "--recover"], ["not lost"]),
        (["@nowhere", "delay", "5"], ["@nowhere"]),
        (["@box", "explode"], ["explode"]),
    ],
)
def test_refusals_name_the_value_and_what_is_allowed(
    box: Machine, arguments: list[str], said: list[str]
) -> None:
    result = sim("inject", *arguments)

    assert result.returncode in (1, 2)
    assert result.stdout == ""
    assert result.stderr.startswith("vgpuctl: ")
    for words in said:
        assert words in result.stderr


def test_a_damaged_machine_is_told_and_can_be_removed() -> None:
    directory = acquire(parse_spec("t4*2@box")).directory  # this process keeps no mapping of it
    os.truncate(directory / "machine", 5000)

    listed = sim("list")
    assert listed.returncode == 0
    assert "damaged" in listed.stderr and "vgpuctl sim rm @box" in listed.stderr
    assert sim("run", "t4*2@box", "--", "true").returncode == 1

    done("rm", "@box")
    assert not directory.exists()


def test_a_machine_in_use_is_not_removed(box: Machine) -> None:
    program = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from support.shim.cuda_client import *; open_context(); print(1, flush=True); input()",
        ],
        env=box.environment({**os.environ, "PYTHONPATH": CLIENT_PATH}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert program.stdout and program.stdout.readline() == b"1\n"
        result = sim("rm", "box")
        assert result.returncode == 1
        assert str(program.pid) in result.stderr
    finally:
        program.kill()
        program.communicate(timeout=PATIENCE_S)
    done("rm", "box")
    assert list(machines_root().glob("@*")) == []
    assert "none" in sim("rm", "box").stderr


def test_a_profile_and_a_driver_of_ones_own(tmp_path: Path) -> None:
    profile = "libvgpu/sim/models/t4.yaml"
    spec = f"{profile}*2/cuda12.8@mine"

    done("run", spec, "--", "true")

    (row,) = json.loads(done("list", "-o", "json"))
    assert row["cuda_version"] == "12.8"
    assert [gpu["profile"] for gpu in row["gpus"]] == ["t4", "t4"]
    assert "CUDA 12.8" in sim("run", f"{profile}*2/cuda12.4@mine", "--", "true").stderr
