"""`vgpuctl set` and ``allowRaise`` through the running agent: what holds, what is refused, what
stays when the agent restarts."""

import json
import logging
import threading
import time
from pathlib import Path

import pytest

from deviceplugin.testing import AdmissionFailed
from libvgpu import allocation_dirs
from libvgpu.errors import UnknownAllocation
from libvgpu.limits import ComputeMode
from support.node.in_process import CONFIG, GIB, MPS_GPU, InProcessNode, only_device
from support.waiting import PATIENCE_S, wait_until
from vgpuctl import agent_client
from vgpuctl.__main__ import main

IN_FORCE_S = 0.05
ALLOW = "limits:\n- {match: {namespace: default}, allowRaise: true}\n"


class HeldPod:
    """One admitted pod, its limits, and `vgpuctl` pointed at its node."""

    def __init__(self, node: InProcessNode, name: str = "a", **limits: int) -> None:
        self.node, self.name = node, f"default/{name}"
        self.pod = node.admit(name, {k.replace("_", "-"): v for k, v in limits.items()})
        options = node.kubelet.run_options(self.pod, "c0")
        mounts = {m.container_path: Path(m.host_path) for m in options.mounts}
        self.directory = mounts["/run/vgpu/limits"].parent
        wait_until(lambda: allocation_dirs.read_meta(self.directory).pod == name)

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
    return HeldPod(node, vgpu_core=40, vgpu_memory=8)


def test_what_is_set_holds_in_the_running_container_until_it_is_cleared(
    held: HeldPod, capsys: pytest.CaptureFixture[str]
) -> None:
    inode = (held.directory / "limits").stat().st_ino

    assert held.set("--core", "20", "--memory", "3GiB", "--compute", "strict") == 0

    assert held.now() == (20, 3 * GIB, ComputeMode.STRICT)
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
        agent_client.set_override(held.node.run_dir, held.directory.name, {"core_percent": percent})
        assert seen.wait(PATIENCE_S)
        took_s.append(time.monotonic() - started)

    assert sorted(took_s)[len(took_s) // 2] <= IN_FORCE_S, took_s


def test_each_value_is_set_by_itself_and_stands_before_a_rule(
    node: InProcessNode, held: HeldPod
) -> None:
    assert held.set("--core", "30") == 0
    assert held.set("--memory", "5GiB") == 0

    follow_rules(node, "limits:\n- {core: 10, memory: 1Gi, compute: strict}\n")

    assert held.now() == (30, 5 * GIB, ComputeMode.STRICT)
    assert held.set("--clear") == 0
    assert held.now() == (10, GIB, ComputeMode.STRICT)


def test_every_change_is_logged_with_old_new_and_cause(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    held = HeldPod(node, vgpu_core=40, vgpu_memory=8)
    caplog.set_level(logging.INFO, "deviceplugin")
    assert held.set("--core", "20") == 0
    follow_rules(node, "limits:\n- {core: 10, memory: 1Gi}\n")
    assert held.set("--clear") == 0

    changes = [
        [r.__dict__["fields"][k] for k in ("core_percent", "memory_bytes", "cause")]
        for r in caplog.records
        if r.message == "limits changed"
    ]
    assert changes == [
        ["40->20", f"{8 * GIB}->{8 * GIB}", "vgpuctl set"],
        ["20->20", f"{8 * GIB}->{GIB}", "vgpuctl set over limits[0] on line 7"],
        ["20->10", f"{GIB}->{GIB}", "limits[0] on line 7"],
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--core", "41", "--memory", "1GiB"], "core 41 of default/a/c0"),
        (["--core", "10", "--memory", "9GiB"], "memory 9 GiB of default/a/c0"),
        (["--core", "10", "--compute", "off"], "would lift the share of 40 %"),
    ],
)
def test_a_raise_nobody_allowed_is_refused_and_changes_nothing(
    held: HeldPod, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert held.set(*options) == 1

    told = capsys.readouterr()
    assert said in told.err
    assert "no rule of limits: with allowRaise: true matches it" in told.err
    assert told.out == ""
    assert held.now() == (40, 8 * GIB, ComputeMode.ELASTIC)


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


def test_a_raise_beyond_what_the_gpu_has_is_refused_with_the_numbers(
    node: InProcessNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = HeldPod(node, mps_core=40, mps_memory=8)
    HeldPod(node, "b", mps_core=35, mps_memory=5)  # the same GPU: the only one of its family
    follow_rules(node, ALLOW)
    capsys.readouterr()

    assert held.set("--core", "66") == 1

    assert (
        "that is 26 more than the 40 it asked for, and GPU "
        f"{MPS_GPU.uuid} has 25 unallocated; at most 65 is allowed"
    ) in capsys.readouterr().err
    assert held.set("--memory", "12GiB") == 1
    assert "has 3 GiB unallocated; at most 11 GiB is allowed" in capsys.readouterr().err
    assert held.set("--core", "65", "--memory", "11GiB") == 0
    assert held.now()[:2] == (65, 11 * GIB)
    with pytest.raises(AdmissionFailed):
        node.admit("c", {"mps-core": 1, "mps-memory": 1})
    capsys.readouterr()


def test_what_a_raised_container_had_is_free_when_it_ends(
    node: InProcessNode, held: HeldPod
) -> None:
    follow_rules(node, ALLOW)
    assert held.set("--core", "90") == 0
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 150)

    node.kubelet.finish(held.pod)

    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 200)


def test_a_rule_raises_where_it_may_and_what_does_not_fit_is_an_event(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "deviceplugin")
    held = HeldPod(node, mps_core=40, mps_memory=8)
    rule = "limits:\n- {{core: {core}, memory: {memory}Gi, allowRaise: {allow}}}\n"

    follow_rules(node, rule.format(core=60, memory=10, allow="false"))
    assert held.now()[:2] == (40, 8 * GIB)
    follow_rules(node, rule.format(core=60, memory=10, allow="true"))
    assert held.now()[:2] == (60, 10 * GIB)
    assert "raise refused" not in caplog.messages
    HeldPod(node, "b", mps_core=30, mps_memory=3)
    follow_rules(node, rule.format(core=80, memory=12, allow="true"))

    assert held.now()[:2] == (60, 12 * GIB)  # each fits by itself or stays
    (refused,) = [
        r
        for r in caplog.records
        if r.message == "raise refused" and "default/a" in str(r.__dict__["fields"]["owner"])
    ]
    assert "core 80 of default/a/c0" in refused.__dict__["fields"]["reason"]
    follow_rules(node, "")
    assert held.now()[:2] == (40, 8 * GIB)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/mps-core"] == 100)


def test_an_mps_change_that_waits_for_a_restart_is_pending(
    node: InProcessNode, capsys: pytest.CaptureFixture[str]
) -> None:
    held = HeldPod(node, mps_core=40, mps_memory=8)
    capsys.readouterr()

    assert held.set("--core", "20", "--memory", "4GiB", "-o", "json") == 0

    rows = {row["value"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["core_percent"]["pending"] and not rows["memory_bytes"]["pending"]
    assert (rows["compute"]["old"], rows["compute"]["new"]) == (None, None)
    assert held.set("--memory", "6GiB") == 0
    assert "4 GiB 6 GiB pending: when its processes start again" in " ".join(
        capsys.readouterr().out.split()
    )
    assert held.set("--compute", "strict") == 1
    assert "belongs to family vgpu" in capsys.readouterr().err


def test_a_restarted_agent_keeps_what_was_set(node: InProcessNode, held: HeldPod) -> None:
    follow_rules(node, ALLOW)
    assert held.set("--core", "70", "--memory", "2GiB") == 0
    before = held.now()

    node.stop_agent()
    assert held.now() == before
    node.start_agent()
    node.wait_registered()

    assert held.now() == before
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 170)
    assert held.set("--clear") == 0
    assert held.now()[:2] == (40, 8 * GIB)


def test_a_raise_whose_permission_is_gone_after_a_restart_is_taken_back(
    node: InProcessNode, held: HeldPod
) -> None:
    follow_rules(node, ALLOW)
    assert held.set("--core", "70") == 0
    node.stop_agent()
    node.config.write_text(CONFIG)
    node.start_agent()
    node.wait_registered()

    wait_until(lambda: held.now()[0] == 40)
    wait_until(lambda: node.kubelet.allocatable()["nvidia.com/vgpu-core"] == 200)


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
    ):
        assert main(["set", *arguments, run_dir]) == status, arguments
        assert said in capsys.readouterr().err
    with pytest.raises(UnknownAllocation):
        agent_client.set_override(node.run_dir, "0" * 12, {"core_percent": 1})


def test_without_an_agent_it_is_refused_in_words(
    node: InProcessNode, held: HeldPod, capsys: pytest.CaptureFixture[str]
) -> None:
    node.stop_agent()
    capsys.readouterr()

    assert held.set("--core", "5") == 1

    assert "no node agent answers at" in capsys.readouterr().err
    assert held.now()[0] == 40
    node.start_agent()
    node.wait_registered()
