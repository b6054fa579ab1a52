"""The wheel alone carries everything that was built: no compiler where it is installed."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from libvgpu._build import OLDER_DRIVERS
from support import ROOT

BUILD_SECONDS = 110
WANTED = {
    "libvgpu/libvgpu.so",
    "libvgpu/_native.abi3.so",
    "libvgpu/sim/lib/libcuda.so.1",
    "libvgpu/sim/lib/libnvidia-ml.so.1",
    *(f"libvgpu/sim/lib/cuda-{version}/libcuda.so.1" for version in OLDER_DRIVERS),
    "libvgpu/sim/models/t4.yaml",
    "libvgpu/sim/mps/tool.py",
    "libvgpu/sim/bin/nvidia-cuda-mps-control",
    "libvgpu/include/vgpu/contract.h",
    "deviceplugin/kubelet/protos/deviceplugin_v1beta1_pb2.py",
    "vgpuctl/commands/run.py",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, check=False,
    )  # fmt: skip
    if listing.returncode != 0:
        pytest.skip("not a git checkout: what belongs to the source is not known")
    for name in listing.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
            target.chmod((ROOT / name).stat().st_mode)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index",
         "--quiet", "--disable-pip-version-check", "-w", str(folder), str(source)],
        check=True, timeout=BUILD_SECONDS, env=os.environ | {"PIP_NO_INPUT": "1"},
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_it_carries_what_was_built_and_no_source(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())

    assert names >= WANTED
    assert not [name for name in names if name.endswith((".c", ".def", ".o"))]


def test_it_is_one_wheel_for_every_python_from_3_11(wheel: zipfile.ZipFile) -> None:
    assert "-cp311-abi3-" in Path(wheel.filename or "").name


def test_the_mps_tool_stays_executable(wheel: zipfile.ZipFile) -> None:
    mode = wheel.getinfo("libvgpu/sim/bin/nvidia-cuda-mps-control").external_attr >> 16

    assert mode & 0o111 == 0o111
