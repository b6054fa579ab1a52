"""What a machine lacks is one sentence with the command that helps."""

import os
from pathlib import Path

import pytest

from support import ROOT
from support.ended import run_to_end

STAND_INS = {
    "id": "echo 1000",
    "cc": "exit 0",
    # What the script asks of a Python: whether it is new enough, and its name.
    "python3": 'case "$*" in *version_info*) exit 0;; *) echo Python 3.12.1;; esac',
}
OLD = 'case "$*" in *version_info*) exit 1;; *) echo Python 3.9.2;; esac'
TOO_OLD = "python3 is Python 3.9.2, and Python 3.11 or newer is needed: "
HELP = "install first, for example: sudo apt-get install"


@pytest.mark.process
@pytest.mark.parametrize(
    ("programs", "variables", "sentence"),
    [
        ({}, {}, ""),
        ({"cc": None}, {}, f"missing: gcc libc6-dev; {HELP} gcc libc6-dev"),
        ({"cc": "exit 1"}, {}, f"missing: libc6-dev; {HELP} libc6-dev"),
        ({"cc": None, "clang": "exit 0"}, {"CC": "clang -m64"}, ""),
        ({}, {"CC": "icc"}, "CC is icc, which is not on PATH; unset it: env -u CC make demo"),
        ({"python3": None}, {}, f"missing: python3; {HELP} python3"),
        ({}, {"PYTHON": "python3.13"}, f"missing: python3.13; {HELP} python3.13"),
        (
            {"python3": OLD, "python3.12": STAND_INS["python3"], "python3.13": OLD},
            {},
            f"{TOO_OLD}make demo PYTHON=python3.12",
        ),
        (
            {"python3": OLD},
            {},
            f"{TOO_OLD}sudo apt-get install python3.11 && make demo PYTHON=python3.11",
        ),
    ],
)
def test_what_is_missing_is_said_with_what_helps(
    tmp_path: Path, programs: dict[str, str | None], variables: dict[str, str], sentence: str
) -> None:
    for name, body in {**STAND_INS, **programs}.items():
        if body is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
            os.chmod(tmp_path / name, 0o755)  # noqa: S103 - a program

    done = run_to_end(
        ["/bin/sh", str(ROOT / "deploy/dev/install-prerequisites.sh")],
        env={"PATH": str(tmp_path), **variables},
    )

    assert (done.stderr.strip(), done.returncode) == (sentence, 1 if sentence else 0)
