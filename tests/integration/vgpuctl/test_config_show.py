"""`vgpuctl config show`, of the agent and of a file."""

import json
import os
import subprocess
from pathlib import Path

from support import warm
from support.node.in_process import CONFIG, InProcessNode


def show(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(["-m", "vgpuctl", "config", "show", *arguments], os.environ | {"NO_COLOR": "1"})


def test_the_agents_config_is_shown_and_without_it_that_is_said(node: InProcessNode) -> None:
    shown = show(f"--run-dir={node.run_dir}", "-o", "json")
    values = {each["key"]: (each["value"], each["origin"]) for each in json.loads(shown.stdout)}
    assert values["sharing.fractional[1].compute"] == ("elastic", "line 5")
    assert values["sharing.fractional[1].placement"] == ("binpack", "default")
    assert str(node.config) in shown.stderr
    node.stop_agent()
    gone = show(f"--run-dir={node.run_dir}")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "no node agent answers" in gone.stderr


def test_a_file_is_shown_without_an_agent(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    shown = show(str(file), "--changed")
    assert shown.returncode == 0
    assert "sharing.fractional[0].family" in shown.stdout
    assert "resourceDomain" not in shown.stdout


def test_a_bad_file_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("version: v1\nsharin: {}\n")
    shown = show(str(file))
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "did you mean 'sharing'?" in shown.stderr
