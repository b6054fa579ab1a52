"""`vgpuctl support-bundle` as typed, with the agent running and with it stopped."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import ROOT, open_to_others, warm
from support.node.simulated import SimulatedNode
from support.waiting import PATIENCE_S

CONFIG = """\
version: v1  # a remark of ours
sharing:
  fractional:
    - {family: vgpu, devices: all, memoryUnit: 1Gi}
limits:
- {match: {namespace: team-with-a-rule}, core: 50}
"""
ALWAYS = {"README.txt", "doctor.json", "events.json", "ps.json", "status.json", "describe.json"}
ALWAYS |= {"allocations.json", "kubelet.json", "versions.json"}
OF_AGENT = {"state.json", "config.json", "metrics.txt"}


@pytest.fixture
def node(short_path: Path) -> Iterator[SimulatedNode]:
    with SimulatedNode(short_path, "h100", CONFIG) as node:
        node.admit("a-tenant", vgpu_core=30, vgpu_memory=4)
        yield node


def bundle(
    node: SimulatedNode, file: Path, *options: str
) -> tuple["subprocess.CompletedProcess[str]", dict[str, str]]:
    done = warm.run(
        ["-m", "vgpuctl", "support-bundle", str(file),
         f"--run-dir={node.base / 'r'}", f"--kubelet-dir={node.base / 'k'}",
         f"--state-dir={node.base / 's'}", *options],
        node.machine.environment(os.environ) | {"A_SECRET": "hush-hush"},
    )  # fmt: skip
    if done.returncode:
        return done, {}
    with tarfile.open(file) as opened:
        return done, {
            m.name.partition("/")[2]: opened.extractfile(m).read().decode()  # type: ignore[union-attr]
            for m in opened.getmembers()
        }


def test_it_has_all_of_a_running_agent(node: SimulatedNode, tmp_path: Path) -> None:
    done, files = bundle(node, tmp_path / "b.tar.gz")
    assert done.returncode == 0, done.stderr
    assert {*ALWAYS, *OF_AGENT, "config-file.txt"} <= files.keys(), done.stderr
    assert files["config-file.txt"] == CONFIG
    assert json.loads(files["ps.json"])[0]["memory_limit_bytes"] == 4 << 30
    assert json.loads(files["describe.json"])[0]["kind"] == "container"
    assert json.loads(files["kubelet.json"])["units"]["nvidia.com/vgpu-core"] == 30
    assert json.loads(files["versions.json"])["driver"]
    assert "vgpu_container_memory_limit_bytes" in files["metrics.txt"]
    (slice_files,) = json.loads(files["allocations.json"])
    assert {"limits", "usage"} <= {each["name"] for each in slice_files["files"]}
    assert "hush-hush" not in "".join(files.values())
    assert all(name in files["README.txt"] for name in files)
    again, _ = bundle(node, tmp_path / "b.tar.gz")
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert bundle(node, tmp_path / "b.tar.gz", "--force")[0].returncode == 0


def test_names_are_replaced_where_that_is_asked(node: SimulatedNode, tmp_path: Path) -> None:
    plain = "".join(bundle(node, tmp_path / "plain.tar.gz")[1].values())
    done, files = bundle(node, tmp_path / "b.tar.gz", "--anonymise")
    whole = "".join(files.values())
    assert "team-with-a-rule" in plain
    assert "team-with-a-rule" not in whole
    assert "config-file.txt" not in files
    assert "left out config-file.txt" in done.stderr
    assert re.search(rf"\b{re.escape(os.uname().nodename)}\b", whole) is None
    assert "anon-" in files["config.json"]


def test_without_the_agent_it_has_the_rest_and_says_what_it_lacks(
    node: SimulatedNode, tmp_path: Path
) -> None:
    node.stop_agent()
    done, files = bundle(node, tmp_path / "b.tar.gz")
    assert done.returncode == 0, done.stderr
    assert files.keys() >= ALWAYS
    assert not OF_AGENT & files.keys()
    for name in OF_AGENT:
        assert f"left out {name}" in done.stderr
        assert "no node agent answers" in files["README.txt"]
    assert json.loads(files["ps.json"])[0]["memory_limit_bytes"] == 4 << 30
    assert os.listdir(tmp_path) == ["b.tar.gz"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_is_told_what_was_left_out(node: SimulatedNode, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    open_to_others(tmp_path.parent)
    file = tmp_path / "b.tar.gz"
    # Not `user=`: Python would fork for it, and gRPC does not outlive that in this process.
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         sys.executable, "-m", "vgpuctl", "support-bundle", str(file),
         f"--run-dir={node.base / 'r'}", f"--kubelet-dir={node.base / 'k'}",
         f"--state-dir={node.base / 's'}"],
        cwd=ROOT, env=node.machine.environment(os.environ), capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    if done.returncode in (126, 127):
        pytest.skip("another user may not run this checkout's Python")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "left out state.json" in done.stderr
    assert "left out ps.json" in done.stderr
