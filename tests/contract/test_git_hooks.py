"""What git runs before a commit is what make runs, and it downloads nothing."""

import re

import pytest
import yaml

from support import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
(LOCAL,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
ENTRIES = {hook["id"]: hook["entry"] for hook in LOCAL["hooks"]}


def test_no_hook_has_an_environment_of_its_own() -> None:
    assert LOCAL["repo"] == "local"
    assert {hook["language"] for hook in LOCAL["hooks"]} == {"system"}


@pytest.mark.parametrize("hook", ENTRIES)
def test_a_hook_runs_a_target_or_what_a_target_runs(hook: str) -> None:
    program, argument, *_ = ENTRIES[hook].split()
    if program == "make":
        assert re.search(rf"^{argument}:", MAKEFILE, re.M)
    else:
        assert f"{program.replace('.venv/bin', '$(BIN)')} {argument}" in MAKEFILE


def test_style_types_and_quick_tests_are_among_them() -> None:
    assert {"make lint", "make quick"} <= set(ENTRIES.values())
