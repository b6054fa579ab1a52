"""`vgpuctl run --summary`: the last word on stderr, whatever ended the command."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.lines import expect, start_listening
from support.user_home import UserHome
from support.waiting import PATIENCE_S

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

CLIENT = """
import os, signal, sys
from cuda.bindings import driver as cu
assert int(cu.cuInit(0)[0]) == 0
_, device = cu.cuDeviceGet(0)
_, context = cu.cuDevicePrimaryCtxRetain(device)
cu.cuCtxSetCurrent(context)
assert int(cu.cuMemAlloc(256 << 20)[0]) == 0
assert int(cu.cuMemAlloc(8 << 30)[0]) == 2
print("held", flush=True)
sys.stdin.read()
sys.exit(3)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return UserHome(tmp_path).environment


#: Who started the tests may have it ignored, and what is ignored at the start stays so.
AT_A_TERMINAL = ("env", "--default-signal=INT")
VGPUCTL = (sys.executable, "-m", "vgpuctl")


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    options = ["--simulate", "t4", "--memory", "2GiB", "--core", "50", "--summary"]
    process = start_listening(
        [*AT_A_TERMINAL, *VGPUCTL, "run", *options, "--", sys.executable, "-c", CLIENT], environment
    )
    expect(process, "held")
    return process


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGINT])
def test_it_is_said_after_failure_and_signal_and_leaves_the_status(
    environment: dict[str, str], end: signal.Signals | None
) -> None:
    process = start(environment)
    if end is not None:
        process.send_signal(end)
        process.wait(PATIENCE_S)  # what ends its stdin as well would let it end by itself
    _, said = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == (3 if end is None else 128 + end)
    block = said[said.index("vgpuctl: ") :]
    assert f"exit status {process.returncode}\n" in block
    assert "GPU 0 (GPU-" in block
    (peak,) = (line for line in block.splitlines() if "Peak memory" in line)
    assert peak.endswith(" MiB of 2 GiB") and 256 < float(peak.split()[2]) < 1024
    assert "Refused:      1 allocation, the last " in block
    assert "8 GiB asked (plain)" in block
    assert not list((Path(environment["VGPU_RUN_DIR"]) / "allocations").iterdir())


def test_a_reader_that_went_away_does_not_change_the_status(environment: dict[str, str]) -> None:
    process = start(environment)
    assert process.stderr is not None
    process.stderr.close()
    process.stderr = None
    process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 3
