"""`vgpuctl run` on MIG devices: a slice of one, by its UUID or its number on the GPU."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.user_home import UserHome
from support.waiting import PATIENCE_S

MIB, GIB = 1 << 20, 1 << 30
OUT_OF_MEMORY = 2
MACHINE = "a100-40g/mig=3g.20gb+2g.10gb+1g.5gb@cut"
UUIDS = """
import json, pynvml as nvml
nvml.nvmlInit()
gpu = nvml.nvmlDeviceGetHandleByIndex(0)
print(json.dumps([nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i))
                  for i in range(3)]))
"""
MEMORY = """
import json
from support.shim.cuda_client import *
check(driver.cuInit(0))
open_context()
uuid = bytes(check(driver.cuDeviceGetUuid(0)).bytes).hex()
total = check(driver.cuDeviceTotalMem(0))
context = total - check(driver.cuMemGetInfo())[0]
sms = check(driver.cuDeviceGetAttribute(
    driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0))
pieces, code = allocate_until_refused(64 << 20)
print(json.dumps(dict(uuid=uuid, total=total, sms=sms, code=code, devices=check(
    driver.cuDeviceGetCount()), left=total - context - len(pieces) * (64 << 20))))
"""
SHARE = """
import json
from support.shim.cuda_client import *
check(driver.cuInit(0))
open_context()
spinner = Spinner(5_000_000)
spinner.share_percent(1.0, wait_each=True)
print(json.dumps(spinner.share_percent(2.0, wait_each=True)))
"""


class Ctl(UserHome):
    """`vgpuctl` with its run directory and machines below one folder."""

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        done = self.vgpuctl(*arguments)
        return done.returncode, done.stdout, done.stderr

    def said(self, *arguments: str) -> Any:
        code, out, err = self(*arguments)
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def ctl(tmp_path: Path) -> Ctl:
    return Ctl(tmp_path)


@pytest.fixture
def uuids(ctl: Ctl) -> list[str]:
    found: list[str] = ctl.said("sim", "run", MACHINE, "--", sys.executable, "-c", UUIDS)
    return found


def on_part(gpu: str, *options: str) -> tuple[str, ...]:
    return ("run", "--simulate", MACHINE, "--gpu", gpu, *options, "--", sys.executable, "-c")


@pytest.mark.parametrize("by_number", [False, True])
def test_a_mig_device_gives_its_limit(ctl: Ctl, uuids: list[str], by_number: bool) -> None:
    name = "0:1" if by_number else uuids[1]

    said = ctl.said(*on_part(name, "--memory", "2GiB"), MEMORY)

    assert said["uuid"] == uuids[1].removeprefix("MIG-").replace("-", "")
    assert (said["total"], said["devices"], said["sms"]) == (2 * GIB, 1, 28)
    assert (said["code"], said["left"] < 64 * MIB) == (OUT_OF_MEMORY, True)


@pytest.mark.timing
def test_shares_of_a_mig_device_are_held_and_another_is_free(ctl: Ctl, uuids: list[str]) -> None:
    asked = [(uuids[0], 20), (uuids[0], 50), (uuids[1], 100)]
    runs = [
        ctl.start(
            *on_part(uuid, "--memory", "1GiB", "--core", str(core)), SHARE, stderr=subprocess.PIPE
        )
        for uuid, core in asked
    ]

    shares = []
    for run in runs:
        out, err = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, err
        shares.append(json.loads(out))

    assert shares[:2] == pytest.approx([20, 50], abs=4)
    assert shares[2] > 85


def test_a_gpu_in_mig_mode_is_not_had_whole(ctl: Ctl, uuids: list[str]) -> None:
    for spec in (MACHINE, "a100-40g/mig"):
        code, _, err = ctl("run", "--simulate", spec, "--", "true")
        assert code != 0
        assert "gpu '0' is in MIG mode, so it cannot be used whole" in err
    assert uuids[2] in ctl("run", "--simulate", MACHINE, "--", "true")[2]


@pytest.mark.parametrize(("gpu", "memory"), [("0:3", "1GiB"), ("0:2", "5GiB")])
def test_what_a_mig_device_has_not_is_refused(
    ctl: Ctl, uuids: list[str], gpu: str, memory: str
) -> None:
    code, _, err = ctl("run", "--simulate", MACHINE, "--gpu", gpu, "--memory", memory, "--", "true")

    assert code != 0
    assert ("is not on this machine" if gpu == "0:3" else "GPU 0:2 (NVIDIA A100") in err
    assert uuids


def test_sim_list_says_what_is_cut_and_used(ctl: Ctl, uuids: list[str]) -> None:
    (row,) = ctl.said("sim", "list", "-o", "json")

    assert [gpu["mig"] for gpu in row["gpus"]] == ["2g.10gb+1g.5gb+3g.20gb"]
    code, out, _ = ctl("sim", "list")
    assert (code, "a100-40g/mig=2g.10gb+1g.5gb+3g.20gb" in out) == (0, True)
    ask = """
import json, subprocess, sys
said = subprocess.run([sys.executable, "-m", "vgpuctl", "sim", "list", "-o", "json"],
                      text=True, capture_output=True).stdout
print(json.dumps(said))
"""
    holds = "from support.shim.cuda_client import *\ncheck(driver.cuInit(0))\nopen_context()" + ask
    (busy,) = json.loads(ctl.said("sim", "run", MACHINE, "--", sys.executable, "-c", holds))
    assert busy["gpus"][0]["clients"] == 1
    assert busy["gpus"][0]["memory_used_bytes"] > 0


def test_status_lists_mig_devices_behind_their_gpu(ctl: Ctl, uuids: list[str]) -> None:
    rows = ctl.said("status", "-o", "json")

    assert [(row["index"], row["mig_device"]) for row in rows] == [
        (0, None),
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    assert [row["uuid"] for row in rows][1:] == uuids
