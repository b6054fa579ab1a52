"""Each C file is compiled once, and again only when something that it is made of changed."""

import os
import shutil
import subprocess
import time
import venv
from pathlib import Path

import pytest

from libvgpu import artifacts
from libvgpu._build import build_library
from libvgpu._compile import Compiler, compile_all, find_compiler, link, said_of
from libvgpu.errors import VgpuError
from support import ROOT
from support.ended import run_to_end
from support.shim.symbols import exports

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    """Three files, of which two include a header, and a compiler that counts its calls."""
    (tmp_path / "both.h").write_text("int both(void);\n")
    (tmp_path / "one.c").write_text('#include "both.h"\nint one(void) { return both(); }\n')
    (tmp_path / "two.c").write_text('#include "both.h"\nint both(void) { return 2; }\n')
    (tmp_path / "three.c").write_text("int three(void) { return 3; }\n")
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    counting = tmp_path / "cc"
    counting.write_text(
        f'#!/bin/sh\necho "$@" "$TMPDIR/" >> {tmp_path}/calls\n[ ! -e edit ] || touch $(cat edit)\n'
        'exec cc "$@"\n'
    )
    counting.chmod(0o755)
    return Compiler((str(counting), "-fPIC"), tmp_path, tmp_path / "objects")


def compiled(compiler: Compiler, *flags: str) -> list[str]:
    """Compiles the three and returns which of them went through the compiler."""
    (compiler.root / "calls").write_text("")
    compile_all(compiler, dict.fromkeys(("one.c", "two.c", "three.c"), flags))
    calls = (compiler.root / "calls").read_text().splitlines()
    return sorted(word for call in calls for word in call.split() if word.endswith(".c"))


@needs_compiler
def test_what_changed_is_compiled_and_nothing_else(compiler: Compiler) -> None:
    assert compiled(compiler) == ["one.c", "three.c", "two.c"]
    assert compiled(compiler) == []
    os.utime(compiler.root / "three.c", (2, 2))
    assert compiled(compiler) == ["three.c"]
    os.utime(compiler.root / "both.h", (2, 2))
    assert compiled(compiler) == ["one.c", "two.c"]
    assert compiled(compiler, "-DOTHER") == ["one.c", "three.c", "two.c"]
    assert compiled(compiler) == []  # those with the former flags are still there


@needs_compiler
def test_what_is_edited_while_it_is_compiled_is_compiled_again(compiler: Compiler) -> None:
    (compiler.root / "edit").write_text("three.c")
    assert compiled(compiler) == ["one.c", "three.c", "two.c"]
    (compiler.root / "edit").unlink()
    assert compiled(compiler) == ["three.c"]
    assert compiled(compiler) == []


@needs_compiler
def test_temporary_files_lie_where_the_objects_do(compiler: Compiler) -> None:
    compiled(compiler)
    calls = (compiler.root / "calls").read_text().splitlines()
    assert {call.split()[-1] for call in calls} == {f"{compiler.objects}/"}


@needs_compiler
def test_a_build_that_was_interrupted_goes_on_where_it_was(compiler: Compiler) -> None:
    compiled(compiler)
    (objects,) = (each for each in compiler.objects.iterdir() if each.is_dir())
    (objects / "one.c.o").rename(objects / "one.c.new")  # killed before it had its name
    (objects / "two.c.of").unlink()
    assert compiled(compiler) == ["one.c", "two.c"]


@needs_compiler
def test_a_file_with_an_earlier_time_has_changed_too(compiler: Compiler) -> None:
    compiled(compiler)
    os.utime(compiler.root / "both.h", (0, 0))  # the clock was set back, or an archive unpacked
    assert compiled(compiler) == ["one.c", "two.c"]
    future_s = time.time() + 1e6
    os.utime(compiler.root / "three.c", (future_s, future_s))
    assert compiled(compiler) == ["three.c"]
    assert compiled(compiler) == []


@needs_compiler
def test_a_header_that_went_away_is_missed_by_the_compiler_and_not_overlooked(
    compiler: Compiler,
) -> None:
    compiled(compiler)
    (compiler.root / "both.h").unlink()
    with pytest.raises(VgpuError, match=r"(?s)one\.c.*both\.h|two\.c.*both\.h"):
        compiled(compiler)


@needs_compiler
def test_a_library_is_linked_again_where_an_object_or_the_command_changed(
    compiler: Compiler,
) -> None:
    library, names = compiler.root / "l.so", ("one.c", "two.c", "three.c")

    def linked(*flags: str) -> bool:
        objects = compile_all(compiler, dict.fromkeys(names, ()))
        before = library.stat().st_ino if library.exists() else 0
        link(compiler, library, list(objects.values()), flags)
        return library.stat().st_ino != before

    assert [linked(), linked()] == [True, False]
    os.utime(compiler.root / "three.c", (2, 2))
    assert [linked(), linked(), linked("-Wl,-soname,other"), linked()] == [True, False, True, True]
    library.write_text("of something else")
    assert [linked(), linked()] == [True, False]
    assert {"one", "both", "three"} <= exports(library)


@needs_compiler
def test_warnings_are_kept_with_the_objects(
    compiler: Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = {"one.c": ["-Wall"], "three.c": ["-Wall"]}
    (compiler.root / "three.c").write_text("int three(void) { int unused; return 3; }\n")
    first = said_of(compile_all(compiler, flags))
    assert "unused variable" in first
    assert "unused variable" in capsys.readouterr().err
    assert said_of(compile_all(compiler, flags)) == first


@needs_compiler
@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_a_python_without_packages_builds_the_shim(tmp_path: Path) -> None:
    checkout, python = tmp_path / "checkout", tmp_path / "bare/bin/python3"
    ours = shutil.ignore_patterns("*.so*", "__pycache__", "sim")
    shutil.copytree(ROOT / "libvgpu", checkout / "libvgpu", ignore=ours)
    venv.create(tmp_path / "bare", with_pip=False)
    quick = tmp_path / "bin/cc"  # what is exported does not hang on how it is optimised
    quick.parent.mkdir()
    quick.write_text(f'#!/bin/sh\nexec {shutil.which("cc")} "$@" -O0 -w\n')
    quick.chmod(0o755)
    library = checkout / "libvgpu/libvgpu.so"

    def build(target: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        return run_to_end(
            [python, "-m", "libvgpu._build", target],
            cwd=checkout,
            env={"PATH": f"{quick.parent}:{os.environ['PATH']}", **variables},
        )

    first = build("shim")

    assert first.returncode == 0, first.stderr
    assert first.stderr.startswith("compiled ")
    assert exports(library) == exports(artifacts.shim_path())
    made_ns = library.stat().st_mtime_ns
    again = build("shim")
    assert (again.returncode, again.stderr, library.stat().st_mtime_ns) == (0, "", made_ns)
    failing = build("shim", CC="false")
    assert failing.returncode == 1
    assert "libvgpu: false -fPIC -std=gnu11 " in failing.stderr
    assert library.stat().st_mtime_ns == made_ns
    unknown = build("shims")
    assert unknown.returncode == 1
    assert (
        "unknown target 'shims'; there are: libcuda, libnvidia_ml, native, shim" in unknown.stderr
    )


@needs_compiler
def test_a_source_that_does_not_compile_is_named_and_nothing_is_replaced(tmp_path: Path) -> None:
    wrong, library = tmp_path / "wrong.c", tmp_path / "wrong.so"
    wrong.write_text("int wrong(void) { return }\n")
    library.write_text("the former one")

    with pytest.raises(VgpuError, match=r"(?s)wrong\.c .*failed: .*error"):
        build_library(library, [str(wrong)])

    assert library.read_text() == "the former one"


def test_a_compiler_that_was_chosen_and_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CC", "/nowhere/cc -m64")

    with pytest.raises(VgpuError, match="CC is '/nowhere/cc', which is not on PATH"):
        find_compiler()
