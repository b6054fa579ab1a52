"""`vgpuctl set` and ``allowRaise`` through the running agent: what holds, what is refused, what
stays when the agent restarts."""

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from deviceplugin.model.overrides import Override
from libvgpu import allocation_dirs
from libvgpu.errors import UnknownAllocation
from libvgpu.limits import ComputeMode
from support.node.in_process import CONFIG, GIB, InProcessNode, only_device
from support.waiting import PATIENCE_S, wait_until
from vgpuctl import agent_client
from vgpuctl.__main__ import main

IN_FORCE_S = 0.05
ALLOW = "limits:\n- {match: {namespace: default}, allowRaise: true}\n"


class HeldPod:
    """A pod with 40 % and 8 GiB, its limits, and `vgpuctl` pointed at its node."""

    name = "default/a"

    def __init__(self, node: InProcessNode) -> None:
        self.node = node
        self.pod = node.admit("a", {"vgpu-core": 40, "vgpu-memory": 8})
        options = node.kubelet.run_options(self.pod, "c0")
        mounts = {m.container_path: Path(m.host_path) for m in options.mounts}
        self.directory = mounts["/run/vgpu/limits"].parent
        wait_until(lambda: allocation_dirs.read_meta(self.directory).pod == "a")

    def now(self) -> tuple[int, int, ComputeMode]:
        device = only_device(self.directory)
        return device.core_percent, device.memory_limit_bytes, device.compute_mode

    def set(self, *options: str) -> int:
        return main(["set", self.name, *options, f"--run-dir={self.node.run_dir}"])


def follow_rules(node: InProcessNode, rules: str) -> None:
    """Edits the config and returns once the agent has it in force."""
    digest = agent_client.agent_report(node.run_dir).config.digest
    node.config.write_text(CONFIG + rules)
    wait_until(lambda: agent_client.agent_report(node.run_dir).config.digest != digest)


@pytest.fixture
def held(node: InProcessNode) -> HeldPod:
    return HeldPod(node)


def test_what_is_set_holds_in_the_running_container_until_it_is_cleared(
    held: HeldPod, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    inode = (held.directory / "limits").stat().st_ino

    assert held.set("--core", "20") == 0
    assert held.set("--memory", "3GiB", "--compute", "strict") == 0  # the share stays set

    assert held.now() == (20, 3 * GIB, ComputeMode.STRICT)
    changes = [r.__dict__["fields"] for r in caplog.records if r.message == "limits changed"]
    assert [each["core_percent"] for each in changes] == ["40->20", "20->20"]
    assert changes[-1]["memory_bytes"] == f"{8 * GIB}->{3 * GIB}"
    table = capsys.readouterr().out
    for line in ("core 40% 20% now", "memory 8 GiB 3 GiB now", "compute elastic strict now"):
        assert line in " ".join(table.split())
    assert held.set("--clear", "-o", "json") == 0
    assert held.now() == (40, 8 * GIB, ComputeMode.ELASTIC)
    rows = {row["value"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["memory_bytes"]["old"], rows["memory_bytes"]["new"]) == (3 * GIB, 8 * GIB)
    assert rows["core_percent"]["owner"] == "default/a/c0"
    assert not any(row["pending"] for row in rows.values())
    assert (held.directory / "limits").stat().st_ino == inode


@pytest.mark.timing
def test_it_is_in_force_within_50_ms(held: HeldPod) -> None:
    took_s = []
    for percent in (30, 20, 10, 5, 35, 25, 15):
        seen = threading.Event()

        def watch(wanted: int, seen: threading.Event) -> None:
            while held.now()[0] != wanted:
                time.sleep(0.001)
            seen.set()

        watcher = threading.Thread(target=watch, args=(percent, seen), daemon=True)
        watcher.start()
        started = time.monotonic()
        override = Override(core_percent=percent)
        agent_client.set_override(held.node.run_dir, held.directory.name, override)
        assert seen.wait(PATIENCE_S)
        took_s.append(time.monotonic() - started)

    assert sorted(took_s)[len(took_s) // 2] <= IN_FORCE_S, took_s


def test_a_raise_that_is_allowed_is_withdrawn_from_the_kubelet_and_comes_back(
    node: InProcessNode, held: HeldPod
) -> None:
    follow_rules(node, ALLOW)

    assert held.set("--core", "70", "--memory", "10752MiB") == 0  # 10.5 GiB, so 3 more units

    assert held.now()[:2] == (70, 10752 << 20)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 170)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 32 - 3)
    assert held.set("--core", "50") == 0
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 190)
    assert held.set("--clear") == 0
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 200)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-memory"] == 32)


def test_a_restarted_agent_keeps_what_was_set_and_is_allowed(
    node: InProcessNode, held: HeldPod
) -> None:
    follow_rules(node, ALLOW)
    assert held.set("--core", "70", "--memory", "2GiB") == 0
    before = held.now()

    node.stop_agent()
    assert held.now() == before
    node.start_agent()
    node.wait_registered()

    assert held.now() == before
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 170)

    node.stop_agent()
    node.config.write_text(CONFIG)
    node.start_agent()
    node.wait_registered()

    wait_until(lambda: held.now()[:2] == (40, 2 * GIB), "nobody allows the raise any more")
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 200)
    assert held.set("--clear") == 0
    assert held.now()[:2] == (40, 8 * GIB)


def test_wrong_words_and_names_are_told_apart(
    node: InProcessNode, held: HeldPod, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = f"--run-dir={node.run_dir}"
    capsys.readouterr()
    for arguments, status, said in (
        ([held.name], 2, "nothing to set"),
        ([held.name, "--core", "0"], 2, "core '0' is not a share"),
        ([held.name, "--memory", "5"], 2, "5 means bytes here; did you mean 5Gi?"),
        ([held.name, "--memory", "8 bananas"], 2, "memory '8 bananas' is not a size"),
        ([held.name, "--compute", "fair"], 2, "'fair' is not one of"),
        ([held.name, "--clear", "--core", "3"], 2, "--clear takes back all values"),
        (["a/b/c/d", "--core", "3"], 2, "neither an allocation's id"),
        (["default/none", "--core", "3"], 1, "'default/none' is not there"),
        ([held.name, "--core", "41"], 1, "no rule of limits: with allowRaise: true matches it"),
    ):
        assert main(["set", *arguments, run_dir]) == status, arguments
        assert said in capsys.readouterr().err
    with pytest.raises(UnknownAllocation):
        agent_client.set_override(node.run_dir, "0" * 12, Override(core_percent=1))
