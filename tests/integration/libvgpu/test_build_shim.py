"""The shim that a C compiler alone builds is the one that setuptools builds."""

import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from libvgpu import artifacts
from libvgpu._build_shim import build_library, find_compiler
from libvgpu.errors import VgpuError
from support import ROOT

BUILD_SECONDS = 240

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def exports(library: Path) -> set[str]:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {line.split()[0] for line in listing.splitlines()}


@needs_compiler
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
@pytest.mark.timeout(2 * BUILD_SECONDS)
def test_a_python_without_packages_builds_it_where_it_is_missing_or_old(tmp_path: Path) -> None:
    checkout, python = tmp_path / "checkout", tmp_path / "bare/bin/python3"
    ours = shutil.ignore_patterns("*.so*", "__pycache__", "sim")
    shutil.copytree(ROOT / "libvgpu", checkout / "libvgpu", ignore=ours)
    venv.create(tmp_path / "bare", with_pip=False)
    library = checkout / "libvgpu/libvgpu.so"

    def build(**variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [python, "-m", "libvgpu._build_shim"], cwd=checkout, timeout=BUILD_SECONDS,
            env={"PATH": os.environ["PATH"], **variables}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip

    first = build()

    assert (first.returncode, first.stderr) == (0, f"building {library}\n")
    assert exports(library) == exports(artifacts.shim_path())
    again = build(CC="false")
    assert (again.returncode, again.stderr) == (0, "")  # it is there
    source = checkout / "libvgpu/src/slice/log.c"
    os.utime(library, (0, source.stat().st_mtime - 1))
    older = build(CC="false")
    assert older.returncode == 1
    assert older.stderr.startswith(f"building {library}\nlibvgpu: false -std=gnu11 ")


@needs_compiler
def test_a_source_that_does_not_compile_is_named_and_nothing_is_replaced(tmp_path: Path) -> None:
    wrong, library = tmp_path / "wrong.c", tmp_path / "wrong.so"
    wrong.write_text("int wrong(void) { return }\n")
    library.write_text("the former one")

    with pytest.raises(VgpuError, match=r"(?s)wrong\.c .*failed: .*error"):
        build_library(library, [str(wrong)])

    assert library.read_text() == "the former one"
    assert {path.name for path in tmp_path.iterdir()} == {"wrong.c", "wrong.so"}


def test_a_compiler_that_was_chosen_and_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc -m64")

    with pytest.raises(VgpuError, match="CC is '/nowhere/cc', which is not on PATH"):
        find_compiler()
