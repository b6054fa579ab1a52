"""What each verb really writes as JSON keeps to its schema, with the agent and without it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import CLIENT_PATH, warm
from support.lines import expect
from support.node.simulated import SimulatedNode
from support.output_schemas import check
from support.waiting import wait_until

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

CONFIG = """\
version: v1
sharing:
  fractional:
    - {family: vgpu, memoryUnit: 1Gi}
"""
CLIENT = """
import sys
from cuda.bindings import driver as cu
cu.cuInit(0)
_, context = cu.cuDevicePrimaryCtxRetain(0)
cu.cuCtxSetCurrent(context)
cu.cuMemAlloc(64 << 20)
cu.cuMemAlloc(64 << 30)
print("ready", flush=True)
sys.stdin.read()
"""


class Outputs:
    """A node with a pod of the agent and a program of `vgpuctl run` on its other GPU."""

    def __init__(self, base: Path) -> None:
        self.node = SimulatedNode(base, "t4*2", CONFIG)
        self.environment = self.node.machine.environment(os.environ) | {
            "VGPU_RUN_DIR": f"{base}/r",
            "VGPU_STATE_DIR": f"{base}/s",
            "PYTHONPATH": CLIENT_PATH,
        }
        self.node.devices(self.node.admit("train", vgpu_core=30, vgpu_memory=4))
        wait_until(lambda: "default/train/c" in self.vgpuctl("ps").stdout, "the pod is known")
        words = ["--gpu", "1", "--memory", "2GiB", "--core", "50", "--name", "mine", "--"]
        self.program = subprocess.Popen(
            [sys.executable, "-m", "vgpuctl", "run", *words, sys.executable, "-c", CLIENT],
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        expect(self.program)

    def vgpuctl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return warm.run(["-m", "vgpuctl", *arguments], self.environment)

    def checked(self, verb: str, *arguments: str) -> list[dict[str, object]]:
        done = self.vgpuctl(verb, *arguments, "-o", "json")
        assert done.returncode == 0, done.stderr
        return check(verb, done.stdout)


@pytest.fixture
def outputs(short_path: Path) -> Iterator[Outputs]:
    made = Outputs(short_path)
    with made.node:
        yield made
        made.program.kill()
        made.program.communicate()


def test_every_verb_keeps_to_its_schema_with_the_agent_and_without_it(outputs: Outputs) -> None:
    (mine,) = (row for row in outputs.checked("ps") if row["name"] == "mine" and row["pid"])
    assert mine["last_refusal"] is not None
    assert {row["health"] for row in outputs.checked("status")} == {""}
    for target in ("default/train", "mine", "0", "1"):
        assert outputs.checked("describe", target)
    assert outputs.checked("set", "default/train", "--core", "20")
    assert outputs.checked("set", "mine", "--memory", "1GiB")
    assert outputs.checked("metrics", "--buckets")
    assert outputs.vgpuctl("events", "-o", "json").returncode == 0
    outputs.checked("events")

    outputs.node.stop_agent()

    assert outputs.checked("ps")
    assert {row["health"] for row in outputs.checked("status")} == {None}
    for target in ("default/train", "mine", "0"):
        assert outputs.checked("describe", target)
    assert outputs.checked("set", "mine", "--core", "10")
    outputs.checked("events")
