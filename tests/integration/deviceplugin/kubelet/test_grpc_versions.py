"""The agent's gRPC with the oldest and the newest releases of grpcio and protobuf that it takes.

The checked-in stubs are written by an old generator so that nodes may have any of them. Agent and
stand-in kubelet both run with the release under test, which lies before the others on PYTHONPATH.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support import ROOT

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
]

#: Registration, lists, preferences, allocations, starts; and podresources, without which the agent
#: would not know whose the slices are.
ROUND_TRIP = """
import random
import google.protobuf, grpc
from benchmarks.agent_node import open_node, profiles
from benchmarks.churn import Churn
from libvgpu.allocation_dirs import list_allocations

with open_node(profiles()[:2]) as node:
    churn = Churn(node, random.Random(1))
    calls = {call.method for call in churn.run(3)}
    names = {pod.name for pod in churn.live}
    node.wait_for(
        "the agent does not know whose its slices are",
        lambda: names <= {entry.meta.pod for entry in list_allocations(node.run_dir)},
        20.0,
    )
print(grpc.__version__, google.protobuf.__version__, *sorted(calls))
"""
CALLS = ["Allocate", "GetPreferredAllocation", "PreStartContainer"]


def floors() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    agent = project["project"]["optional-dependencies"]["agent"]
    found = (re.fullmatch(r"(grpcio|protobuf)>=([\d.]+)", line) for line in agent)
    return {match[1]: match[2] for match in found if match}


def cases() -> list[tuple[str, str]]:
    oldest = floors()
    return [
        (f"grpcio=={oldest['grpcio']}", f"protobuf=={oldest['protobuf']}"),
        ("grpcio==1.84.2", "protobuf>=6,<7"),
        ("grpcio", "protobuf"),
    ]


@pytest.mark.parametrize(("grpcio", "protobuf"), cases())
def test_the_agent_and_the_kubelet_understand_each_other(
    tmp_path: Path, grpcio: str, protobuf: str
) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run(
        [*install, "--only-binary=:all:", f"--target={tmp_path}", grpcio, protobuf],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if "Connection" in installed.stderr and installed.returncode:
        pytest.skip("these releases cannot be fetched: there is no network")
    assert installed.returncode == 0, installed.stderr

    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-c", ROUND_TRIP],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert ran.returncode == 0, ran.stderr
    used_grpcio, used_protobuf, *calls = ran.stdout.split()
    assert calls == CALLS
    for wanted, used in ((grpcio, used_grpcio), (protobuf, used_protobuf)):
        if "==" in wanted:
            assert used == wanted.partition("==")[2]
    if ">=" in protobuf:
        assert used_protobuf.startswith("6.")
