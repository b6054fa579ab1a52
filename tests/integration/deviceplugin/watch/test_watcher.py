"""What the shim cannot see, the agent does: memory past it, and who uses a GPU without a slice."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from libvgpu import region
from support.node.simulated import CONFIG
from support.node.watched import (
    HOLD,
    TERMINATE,
    Contained,
    WatchedNode,
    can_contain,
    first_word,
)
from support.shim.lazy_code import START
from support.shim.pid_namespaces import OWN_PROC, need_namespaces, pid_within
from support.sim.programs import PRELUDE
from support.waiting import bar, wait_until

pytestmark = pytest.mark.skipif(not can_contain(), reason="may not make mount namespaces")

GIB, MIB = 1 << 30, 1 << 20
SEEN_WITHIN_S = 5.0
LIMIT_BYTES = 4 * GIB

Start = Callable[..., WatchedNode]


@pytest.fixture
def start(short_path: Path) -> Iterator[Start]:
    """Returns ``start(**options)``, which makes the node of the test."""
    with contextlib.ExitStack() as made:
        yield lambda **options: made.enter_context(WatchedNode(short_path, **options))


def nvml_bytes(node: WatchedNode, pid: int) -> int:
    (device,) = node.machine.books()
    return next(p.memory_bytes for p in device.clients if p.pid == pid)


def alive(container: Contained) -> list[bool]:
    return [program.poll() is None for program in container.programs]


def quiet(node: WatchedNode, container: Contained) -> bool:
    """Returns whether nothing was ever said of a container."""
    told = node.lines("unaccounted GPU memory is charged") + node.lines("process bypasses the shim")
    return container.limit().unaccounted_bytes == 0 and not any(
        container.allocation_id in line for line in told
    )


def test_memory_past_the_shim_is_seen_charged_and_given_back(start: Start) -> None:
    node = start()
    uuid = node.machine.devices[0].uuid
    assert node.metric("vgpu_gpu_memory_unaccounted_bytes", gpu=uuid) == 0
    honest, rogue = node.contain("honest"), node.contain("rogue")
    honest.start(HOLD, GIB)
    rogue.start(HOLD, 512 * MIB)

    pid = rogue.start(HOLD, GIB, shim=False)
    wait_until(lambda: bool(node.lines("process bypasses the shim")))
    held = nvml_bytes(node, pid)
    # Of the one that its ledger knows, what the driver may have besides is not charged.
    wait_until(lambda: 0 < held - rogue.limit().unaccounted_bytes < 200 * MIB)

    (line,) = node.lines("process bypasses the shim")
    assert f"pid={pid}" in line
    assert f"allocation={rogue.allocation_id}" in line
    assert "owner=default/rogue/c" in line
    charged = rogue.limit().unaccounted_bytes
    assert node.metric("vgpu_gpu_memory_unaccounted_bytes", gpu=uuid) == charged
    of_rogue = {"allocation": rogue.allocation_id}
    assert node.metric("vgpu_container_memory_unaccounted_bytes", **of_rogue) == charged
    # What was found is published after log and limits.
    wait_until(lambda: node.metric("vgpu_container_bypassing_processes", **of_rogue) == 1)
    (finding,) = node.doctor()
    assert finding["level"] == "warn"
    assert f"process {pid} " in finding["message"]
    assert "default/rogue/c" in finding["message"]

    refused = rogue.start(
        """
open_context()
pieces, code = allocate_until_refused(64 << 20)
say(ready=len(pieces) * (64 << 20))
sys.stdin.read()
"""
    )
    assert refused + 512 * MIB + charged <= LIMIT_BYTES
    assert refused + 512 * MIB + charged > LIMIT_BYTES - GIB // 2

    rogue.end()
    wait_until(lambda: rogue.limit().unaccounted_bytes == 0)
    wait_until(lambda: node.metric("vgpu_container_bypassing_processes", **of_rogue) == 0)
    assert len(node.lines("unaccounted GPU memory is gone")) == 1
    assert quiet(node, honest)
    assert alive(honest) == [True]
    assert node.doctor() == []


def test_processes_that_are_number_one_each_are_told_apart(start: Start) -> None:
    """The first process of every PID namespace is; some of a pod may have one of their own."""
    need_namespaces()
    node = start()
    other, pod = node.contain("other"), node.contain("pod")

    def begin(container: Contained, *, shim: bool) -> int:
        command = [*OWN_PROC, sys.executable, "-c", PRELUDE + HOLD, str(GIB)]
        program = container.spawn(command, shim=shim)
        assert first_word(program) == 1
        return pid_within(program)

    begin(other, shim=True)
    begin(pod, shim=True)
    begin(pod, shim=True)
    rogue = begin(pod, shim=False)
    wait_until(lambda: bool(node.lines("process bypasses the shim")))
    wait_until(lambda: 0 < GIB - pod.limit().unaccounted_bytes < 200 * MIB)

    (line,) = node.lines("process bypasses the shim")
    assert f"pid={rogue}" in line
    assert f"allocation={pod.allocation_id}" in line
    assert quiet(node, other)


@pytest.mark.long
@pytest.mark.parametrize("most_s", bar(SEEN_WITHIN_S))
def test_a_bypassing_process_is_seen_within_the_bar(start: Start, most_s: float) -> None:
    node = start()
    rogue = node.contain("rogue")

    rogue.start(HOLD, GIB, shim=False)

    wait_until(lambda: bool(node.lines("process bypasses the shim")), patience_s=most_s)


def test_by_policy_only_who_bypasses_is_ended(start: Start) -> None:
    node = start()
    rogue, other = node.contain("rogue"), node.contain("other")
    known = rogue.start(HOLD, GIB)
    bypassing = rogue.start(HOLD, GIB, shim=False)
    other.start(HOLD, GIB)
    stranger = node.start_stranger(HOLD, 64 * MIB)
    wait_until(lambda: bool(node.lines("process bypasses the shim")))
    wait_until(lambda: bool(node.lines("process without an allocation uses a GPU")))
    assert alive(rogue) == [True, True]  # reported, as long as the config says no more

    node.config.write_text(TERMINATE)

    wait_until(lambda: alive(rogue) == [True, False])
    (line,) = wait_until(lambda: node.lines("process killed: it bypassed the shim"))
    assert f"pid={bypassing}" in line
    wait_until(lambda: node.metric("vgpu_watch_processes_killed_total") == 1)
    wait_until(lambda: rogue.limit().unaccounted_bytes == 0)
    assert known != bypassing
    assert alive(other) == [True]
    assert node.strangers[0].poll() is None
    assert not any(f"pid={stranger}" in line for line in node.lines("process bypasses the shim"))

    node.config.write_text(CONFIG)
    wait_until(lambda: len(node.lines("config in force")) == 2)
    other.start(HOLD, GIB, shim=False)
    wait_until(lambda: len(node.lines("process bypasses the shim")) == 2)
    assert alive(other) == [True, True]


def test_by_policy_who_empties_its_usage_is_ended(start: Start) -> None:
    node = start()
    rogue, other = node.contain("rogue"), node.contain("other")
    pid = rogue.start(HOLD, GIB)
    other.start(HOLD, GIB)
    size = (rogue.directory / "usage").stat().st_size

    os.truncate(rogue.directory / "usage", 0)

    (line,) = wait_until(lambda: node.lines("a container's usage file is damaged"))
    assert f"allocation={rogue.allocation_id}" in line
    assert "owner=default/rogue/c" in line
    of_rogue = {"allocation": rogue.allocation_id}
    wait_until(lambda: node.metric("vgpu_container_usage_damaged", **of_rogue) == 1)
    assert (rogue.directory / "usage").stat().st_size == size
    findings = wait_until(lambda: node.doctor())
    assert any("overwritten the header" in f["message"] for f in findings)
    assert alive(rogue) == [True]  # reported, as long as the config says no more

    node.config.write_text(TERMINATE)

    wait_until(lambda: alive(rogue) == [False])
    (line,) = wait_until(lambda: node.lines("process killed: it bypassed the shim"))
    assert f"pid={pid}" in line
    assert alive(other) == [True]


def test_what_a_pods_libraries_load_later_is_charged_without_the_agent(start: Start) -> None:
    node = start()
    pod = node.contain("torch")

    code = START + "launch(lazy(93)); quiet(); say(ready=beyond()); sys.stdin.read()"
    beyond_bytes = pod.start(code)

    assert beyond_bytes <= 2 * MIB
    (process,) = region.read_usage(pod.directory).processes
    assert process.devices[0].kind_bytes["other"] >= 93 * MIB
    time.sleep(SEEN_WITHIN_S)
    assert quiet(node, pod)


def test_containers_know_what_those_before_them_measured(start: Start) -> None:
    node = start()
    profile = node.machine.devices[0].profile
    kept = node.base / "s" / "learnt-sizes.json"

    def is_known(allocation_id: str) -> bool:
        return kept.exists() and allocation_id in kept.read_text()

    for number in range(3):
        pod = node.contain(f"pod-{number}", memory_gib=1)
        known = profile.context_bytes if number else 0
        assert (pod.limit().context_bytes, pod.limit().block_bytes) == (known, 0)
        pod.start(HOLD, MIB)
        wait_until(partial(is_known, pod.allocation_id))

    block_bytes = profile.calibration.block_bytes
    for restarts in range(2):
        limit = node.contain(f"later-{restarts}", memory_gib=1).limit()
        assert (limit.context_bytes, limit.block_bytes) == (profile.context_bytes, block_bytes)
        node.stop_agent()
        node.start_agent()
