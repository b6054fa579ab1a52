"""`vgpuctl metrics` and `vgpuctl completion`, as typed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, warm
from support.ended import run_to_end
from support.node.in_process import InProcessNode


def vgpuctl(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(["-m", "vgpuctl", *arguments], os.environ | environment)


def test_metrics_are_those_of_the_page(node: InProcessNode) -> None:
    node.admit("pod", {"vgpu-core": 40, "vgpu-memory": 4})
    where = f"--run-dir={node.run_dir}"
    shown = vgpuctl("metrics", where, "-o", "json", "core_allocated")
    values = [each["value"] for each in json.loads(shown.stdout)]
    assert sorted(values) == [0.0, 0.0, 0.4], shown
    table = vgpuctl("metrics", where, "vgpu_container_core_limit").stdout
    assert "vgpu_container_core_limit_ratio" in table
    assert "0.4" in table
    assert "_bucket" not in vgpuctl("metrics", where).stdout
    assert "_bucket" in vgpuctl("metrics", where, "--buckets").stdout
    nothing = vgpuctl("metrics", where, "nosuch")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    node.stop_agent()
    gone = vgpuctl("metrics", where)
    assert gone.returncode == 1
    assert "no node agent answers" in gone.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    done = vgpuctl("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_VGPUCTL_COMPLETE" in done.stdout


def test_another_shell_is_wrong_usage() -> None:
    done = vgpuctl("completion", "csh")
    assert done.returncode == 2
    assert "csh" in done.stderr


def test_bash_completes_verbs_and_options(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "vgpuctl"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m vgpuctl "$@"\n')
    command.chmod(0o755)
    asked = (
        'eval "$(vgpuctl completion bash)"; COMP_WORDS=(vgpuctl {words}); COMP_CWORD={at};'
        ' _vgpuctl_completion vgpuctl; echo "${{COMPREPLY[@]}}"'
    )

    def completed(words: str, at: int) -> set[str]:
        done = run_to_end(
            [bash, "-c", asked.format(words=words, at=at)],
            env={"PATH": f"{tools}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
            check=True,
        )
        return set(done.stdout.split())

    assert completed("st", 1) == {"status"}
    assert "--sort" in completed("top --", 2)
    assert completed("top --sort m", 3) == {"memory"}


def test_an_error_of_our_own_is_a_sentence_and_debug_shows_where(
    tmp_path: Path,
) -> None:
    """A verb whose module is broken: nothing that vgpuctl foresees."""
    (tmp_path / "sitecustomize.py").write_text(
        "import vgpuctl.commands.ps as ps\nps.read_slices = None\n"
    )

    def said(*words: str) -> "subprocess.CompletedProcess[str]":
        return run_to_end(
            [sys.executable, "-m", "vgpuctl", *words, f"--run-dir={tmp_path}"],
            env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"},
        )

    done = said("ps")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "an error of vgpuctl itself" in done.stderr
    shown = said("--debug", "ps")
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr
