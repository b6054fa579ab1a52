"""A set-up that fails or is killed is gone on from; uv and the C compiler are stand-ins."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT
from support.waiting import PATIENCE_S, wait_until

# Answers --version, notes how it is called, and then does what the file `do` says.
UV = """#!/bin/sh
[ "$1" = --version ] && exit 0
echo "$PIP_USER" "$@" >> asked
. ./do
"""
BUILD = "import pathlib, sys\nexec(pathlib.Path('compile').read_text())\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with nothing but the set-up; its uv succeeds and its C compiles."""
    root = tmp_path / "a chéckout"
    for folder in ("deploy/dev", "libvgpu", "tools"):
        (root / folder).mkdir(parents=True)
    for name in ("set_up.py", "package_index.py"):
        shutil.copy(ROOT / "deploy/dev" / name, root / "deploy/dev")
    (root / "pyproject.toml").write_text(
        "[project]\ndependencies = []\noptional-dependencies = {agent=[], demo=[], lint=[]}\n"
    )
    (root / "libvgpu/__init__.py").touch()
    (root / "libvgpu/_build.py").write_text(BUILD)
    (root / "tools/uv").write_text(UV)
    (root / "tools/uv").chmod(0o755)
    for name in ("do", "compile", "asked"):
        (root / name).touch()
    return root


def start(checkout: Path, *extras: str) -> "subprocess.Popen[str]":
    program = ["deploy/dev/set_up.py", ".venv", *(extras or ("agent", "demo"))]
    offline = {"PIP_NO_INDEX": "1", "PIP_USER": "1", "PIP_CONFIG_FILE": os.devnull}
    path = f"{checkout}/tools:{os.environ['PATH']}"
    return subprocess.Popen(
        [sys.executable, *program],
        cwd=checkout,
        env={**os.environ, **offline, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def set_up(checkout: Path, *extras: str) -> tuple[int, str]:
    """Returns how it ended and what it said."""
    process = start(checkout, *extras)
    said = process.communicate(timeout=PATIENCE_S)[0]
    assert "Traceback" not in said
    return process.returncode, said


def asked(checkout: Path) -> list[str]:
    """Returns what uv was asked since the last call."""
    lines = (checkout / "asked").read_text().splitlines()
    (checkout / "asked").write_text("")
    return lines


def test_the_project_is_installed_once_its_packages_are_there_and_c_is_compiled(
    checkout: Path,
) -> None:
    (checkout / "compile").write_text("print('compiled 3 of 3 C files')")

    code, said = set_up(checkout)

    assert (code, said.count("compiled 3 of 3")) == (0, 1)
    packages, project = asked(checkout)
    assert packages.startswith("0 pip install --python ")
    assert packages.endswith("-r pyproject.toml --extra=agent --extra=demo")
    assert "--no-deps" in project and project.endswith("-e .")
    assert not (checkout / ".venv/.unfinished").exists()


def test_what_was_killed_is_made_again_with_all_that_was_there(checkout: Path) -> None:
    assert set_up(checkout)[0] == 0
    for stamp in (".demo", ".lint"):
        (checkout / ".venv" / stamp).touch()
    (checkout / ".venv/half-written").touch()
    asked(checkout)
    # uv goes on when the set-up is gone, and holds its lock.
    (checkout / "do").write_text(
        "kill -9 $PPID; flock -n build/.set-up.lock true && echo free > lock || echo held > lock"
    )

    assert set_up(checkout, "lint")[0] == -signal.SIGKILL

    assert wait_until(lambda: (checkout / "lock").exists() and (checkout / "lock").read_text()) == (
        "held\n"
    )
    (checkout / "do").write_text("")
    asked(checkout)
    assert set_up(checkout)[0] == 0
    assert asked(checkout)[0].endswith("--extra=agent --extra=demo --extra=lint")
    assert not (checkout / ".venv/half-written").exists()
    assert (checkout / ".venv/.demo").exists() and (checkout / ".venv/.lint").exists()


@pytest.mark.parametrize(
    ("do", "sentence", "is_kept"),
    [
        (
            "echo 'error: no route'; exit 1",
            "packages cannot be installed (error: no route); check the network",
            True,
        ),
        ("echo 'No space left on device (os error 28)'; exit 1", "a disk is full (No space", False),
    ],
)
def test_packages_that_cannot_be_had_are_one_sentence(
    checkout: Path, do: str, sentence: str, is_kept: bool
) -> None:
    assert set_up(checkout)[0] == 0
    (checkout / ".venv/kept").touch()
    (checkout / "do").write_text(do)

    code, said = set_up(checkout)

    assert (code, said.splitlines()[-1]) == (1, "The same command goes on from here.")
    assert said.splitlines()[-2].startswith(f"set-up: {sentence}")
    (checkout / "do").write_text("")
    assert set_up(checkout)[0] == 0
    assert (checkout / ".venv/kept").exists() is is_kept


def test_c_that_does_not_compile_is_one_sentence(checkout: Path) -> None:
    (checkout / "compile").write_text("sys.exit('cc x.c failed:\\nx.c:1: error: it is wrong')")

    code, said = set_up(checkout)

    assert code == 1
    assert "set-up: x.c:1: error: it is wrong\n" in said
    assert len(asked(checkout)) == 1


def test_a_checkout_of_somebody_else_is_named(checkout: Path) -> None:
    (checkout / "build").write_text("")  # root may write where others may not

    code, said = set_up(checkout)

    assert code == 1
    assert f"set-up: {checkout}/build: File exists" in said
