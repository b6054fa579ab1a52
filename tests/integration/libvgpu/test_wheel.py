"""The wheel alone carries everything that was built: no compiler where it is installed.

It is built as users get it, for every glibc from 2.17 on, which takes minutes and ziglang. In the
gate, `test_build.py` builds the shim of the same list of sources, by a Python without packages.
"""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from libvgpu._build import outputs
from support import ROOT
from support.ended import printed
from support.suite.on_build import TESTS_SECONDS, assert_tests_pass_on

pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * TESTS_SECONDS)]
NEWEST_GLIBC = (2, 17)

WANTED = {
    *outputs(),
    "libvgpu/sim/models/t4.yaml",
    "libvgpu/sim/mps/tool.py",
    "libvgpu/sim/bin/nvidia-cuda-mps-control",
    "libvgpu/include/vgpu/contract.h",
    "deviceplugin/kubelet/protos/deviceplugin_v1beta1_pb2.py",
    "vgpuctl/commands/run.py",
    "vgpu-0.1.0.data/data/share/man/man1/vgpuctl.1",
    "vgpu-0.1.0.data/data/share/man/man1/kubectl-vgpu.1",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
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
        check=True, timeout=TESTS_SECONDS,
        env=os.environ | {"PIP_NO_INPUT": "1", "VGPU_PORTABLE": "1"},
    )  # fmt: skip
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def unpacked(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    wheel.extractall(folder)
    return folder / "libvgpu"


def glibc_versions(library: Path) -> set[tuple[int, ...]]:
    """The versions of glibc whose symbols a library asks for, as binutils reads them."""
    if shutil.which("objdump") is None:
        pytest.skip("no objdump")
    table = printed("objdump", "-T", str(library))
    named = re.findall(r"\bGLIBC_([\w.]+)", table)
    assert named, table  # a library without any would mean that the table was not read
    return {tuple(map(int, version.split("."))) for version in named}


def test_its_libraries_need_nothing_above_glibc_2_17(unpacked: Path) -> None:
    libraries = sorted(unpacked.rglob("*.so*"))

    newest = {path.name: max(glibc_versions(path)) for path in libraries}

    assert len(libraries) == len(outputs())
    assert {name: found for name, found in newest.items() if found > NEWEST_GLIBC} == {}


def test_its_tag_says_which_systems_it_is_for(wheel: zipfile.ZipFile) -> None:
    assert Path(wheel.filename or "").name.endswith("-cp311-abi3-manylinux2014_x86_64.whl")
    (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL"))
    assert b"Tag: cp311-abi3-manylinux2014_x86_64\n" in wheel.read(metadata)


def test_its_libraries_name_no_folder_of_the_build_machine(unpacked: Path) -> None:
    folders = (str(ROOT), sys.prefix, sys.base_prefix + "/", os.path.expanduser("~/."))
    for library in unpacked.rglob("*.so*"):
        content = library.read_bytes()
        assert [each for each in folders if each.encode() in content] == [], library.name
        dynamic = printed("readelf", "-d", str(library))
        assert "NEEDED" in dynamic
        assert not re.search(r"RPATH|RUNPATH", dynamic), dynamic


def test_its_shim_passes_the_tests_of_the_shim(unpacked: Path) -> None:
    assert_tests_pass_on(unpacked)


def test_it_carries_what_was_built_and_no_source(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())

    assert names >= WANTED
    assert not [name for name in names if name.endswith((".c", ".def", ".o"))]


def test_it_is_one_wheel_for_every_python_from_3_11(wheel: zipfile.ZipFile) -> None:
    assert "-cp311-abi3-" in Path(wheel.filename or "").name


def test_the_mps_tool_stays_executable(wheel: zipfile.ZipFile) -> None:
    mode = wheel.getinfo("libvgpu/sim/bin/nvidia-cuda-mps-control").external_attr >> 16

    assert mode & 0o111 == 0o111
