"""`vgpuctl events` shows what the agent told, with the agent and without it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import EventReason, Notice, node_notice
from deviceplugin.store.event_file import EventFile
from deviceplugin.testing import AdmissionFailed
from support import ROOT, warm
from support.lines import next_line
from support.node.in_process import InProcessNode


def events(state_dir: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return warm.run(["-m", "vgpuctl", "events", f"--state-dir={state_dir}", *options], os.environ)


def test_a_refusal_is_shown_also_when_the_agent_is_down(node: InProcessNode) -> None:
    node.admit("first", {"vgpu-core": 60, "vgpu-memory": 4})
    node.admit("second", {"vgpu-core": 60, "vgpu-memory": 4})
    with pytest.raises(AdmissionFailed):
        node.admit("third", {"vgpu-core": 60, "vgpu-memory": 4})
    shown = events(node.state_dir)
    assert "AllocationRefused" in shown.stdout, shown
    assert "vgpu-core: 60" in shown.stdout
    node.stop_agent()
    assert events(node.state_dir).stdout == shown.stdout


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with an old warning of a pod, and a new event of the node."""
    old = EventFile(tmp_path, lambda: time.time() - 7200)
    old.add(Notice(EventReason.ALLOCATION_REFUSED, "no room", Owner("team", "train-0", "main")))
    EventFile(tmp_path).add(node_notice(EventReason.GPU_HEALTHY, "GPU 0 is well"))
    return tmp_path


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ([], ["AllocationRefused", "GpuHealthy"]),
        (["--since=1h"], ["GpuHealthy"]),
        (["--since=3h"], ["AllocationRefused", "GpuHealthy"]),
        (["--warnings"], ["AllocationRefused"]),
        (["--pod=team/train-0"], ["AllocationRefused"]),
        (["--pod=team/train-0/main"], ["AllocationRefused"]),
        (["--pod=team/train"], []),
    ],
)
def test_what_is_wanted_is_shown(kept: Path, options: list[str], reasons: list[str]) -> None:
    shown = events(kept, "-o", "json", *options)
    assert shown.returncode == 0, shown.stderr
    assert [each["reason"] for each in json.loads(shown.stdout)] == reasons


@pytest.mark.parametrize("options", [["--since=soon"], ["--since=5"], ["--pod=train-0"]])
def test_bad_options_are_wrong_usage(kept: Path, options: list[str]) -> None:
    shown = events(kept, *options)
    assert shown.returncode == 2
    assert options[0].partition("=")[2] in shown.stderr


def test_no_events_are_no_error(tmp_path: Path) -> None:
    shown = events(tmp_path)
    assert (shown.returncode, shown.stdout) == (0, "")
    assert "no events" in shown.stderr


def test_what_comes_is_followed(kept: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "vgpuctl", "events", f"--state-dir={kept}", "-f", "-o", "json"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    ) as shown:  # fmt: skip
        first = [json.loads(next_line(shown))["reason"] for _ in range(2)]
        EventFile(kept).add(node_notice(EventReason.GPU_UNHEALTHY, "GPU 0 has XID 79"))
        last = json.loads(next_line(shown))
        shown.terminate()
    assert first == ["AllocationRefused", "GpuHealthy"]
    assert (last["reason"], last["text"]) == ("GpuUnhealthy", "GPU 0 has XID 79")
