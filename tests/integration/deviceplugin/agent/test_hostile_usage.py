"""What a tenant does to its own `usage` stays the tenant's problem: the agent and others go on."""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.model.gpus import GpuListing
from deviceplugin.testing import AdmittedPod
from libvgpu import region
from libvgpu.errors import RegionError
from support.node.agent_process import ProcessNode
from support.node.in_process import (
    CONFIG,
    GIB,
    MPS_GPU,
    SPARE_GPU,
    VGPU_GPU,
    InProcessNode,
    running_node,
    wait_until_lost,
)
from support.waiting import wait_until

PAIR = {"vgpu-core": 10, "vgpu-memory": 1}
HUGE_BYTES = 1 << 40
TMPFS_MIB = 24
PODS_AFTER = 8


def truncate(usage: Path) -> None:
    os.truncate(usage, 100)


def fill_with_garbage(usage: Path) -> None:
    usage.write_bytes(os.urandom(usage.stat().st_size))


def make_huge(usage: Path) -> None:
    os.truncate(usage, HUGE_BYTES)


def replace_by_fifo(usage: Path) -> None:
    usage.unlink()
    os.mkfifo(usage)


def replace_by_link(usage: Path) -> None:
    usage.unlink()
    usage.symlink_to("/dev/zero")


def replace_by_directory(usage: Path) -> None:
    usage.unlink()
    usage.mkdir()


HARMS = [
    truncate,
    fill_with_garbage,
    make_huge,
    replace_by_fifo,
    replace_by_link,
    replace_by_directory,
]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessNode]:
    with running_node(monkeypatch, ProcessNode) as node:
        assert isinstance(node, ProcessNode)
        yield node


def usage_of(node: InProcessNode, pod: AdmittedPod) -> Path:
    options = node.kubelet.run_options(pod, "c0")
    return next(Path(m.host_path) for m in options.mounts if m.container_path == "/run/vgpu/usage")


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_usage_file_is_nobody_elses_problem(
    node: ProcessNode, harm: Callable[[Path], None]
) -> None:
    hostile, honest = node.admit("hostile", PAIR), node.admit("honest", PAIR)
    usage, limit = usage_of(node, hostile), node.limit(honest)
    allocation, other = usage.parent.name, usage_of(node, honest).parent.name

    harm(usage)

    seen = node.page("/metrics")
    readable = dict(re.findall(r'vgpu_container_usage_readable\{allocation="(\w+)".*\} (\d)', seen))
    assert readable[other] == "1"
    assert readable[allocation] == "0" or harm in (make_huge, truncate), "a size is put right"
    assert node.limit(honest) == limit
    assert node.limit(node.admit("next", PAIR)).memory_limit_bytes == GIB
    node.kill_agent()
    wait_until_lost(node.kubelet)
    node.start_agent()
    node.wait_registered()
    assert node.limit(honest) == limit
    assert f'usage_readable{{allocation="{other}"' in node.page("/metrics")
    node.kubelet.finish(hostile)
    wait_until(lambda: not usage.parent.exists())


def reserve_more(usage: Path) -> None:
    subprocess.run(["fallocate", "--keep-size", "--length", "8MiB", usage], check=True)


def punch(usage: Path) -> None:
    subprocess.run(
        ["fallocate", "--punch-hole", "--offset", "64KiB", "--length", "64KiB", usage], check=True
    )


SIZES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "grown": (make_huge, True),
    "cut off": (truncate, True),
    "emptied": (lambda usage: os.truncate(usage, 0), True),
    "blocks beyond its end": (reserve_more, False),
    "a hole": (punch, False),
}


@pytest.mark.parametrize(("change", "is_told"), SIZES.values(), ids=SIZES.keys())
def test_a_usage_of_another_size_is_given_its_size_and_blocks_again(
    node: ProcessNode, change: Callable[[Path], object], is_told: bool
) -> None:
    pod = node.admit("hostile", PAIR)
    usage = usage_of(node, pod)
    whole = usage.stat()

    for times in range(2):
        change(usage)
        wait_until(
            lambda: (
                (now := usage.stat()).st_size == whole.st_size
                and now.st_blocks * 512 >= whole.st_size
                and now.st_blocks <= whole.st_blocks + 128
            )
        )
        name = f'vgpu_container_usage_restored_total{{allocation="{usage.parent.name}"'
        told = f"{float(times + 1)}" if is_told else "0.0"
        wait_until(lambda: re.search(re.escape(name) + rf".* {told}\n", node.page("/metrics")))  # noqa: B023
    assert usage.stat().st_ino == whole.st_ino
    lines = node.log.read_text().count('msg="a container\'s usage file had another size"')
    assert lines == is_told, "it is told of once in a while"


def test_a_container_that_starts_again_has_a_usage_again(node: ProcessNode) -> None:
    pod = node.admit("clumsy", PAIR)
    usage = usage_of(node, pod)
    os.truncate(usage, 0)
    with pytest.raises(RegionError):
        region.read_usage(usage.parent)

    usage_of(node, pod)  # the kubelet asks before each start

    assert region.read_usage(usage.parent).processes == ()
    assert node.limit(pod).memory_limit_bytes == GIB


@pytest.fixture
def small_tmpfs() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MIB}m", "tmpfs", name]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


def fill(descriptor: int) -> None:
    while True:
        os.write(descriptor, bytes(1 << 16))


class SmallNode(InProcessNode):
    """A node whose run directory is a small file system."""

    root: Path

    def __init__(self, base: Path, seed: int = 1) -> None:
        super().__init__(base, seed)
        self.run_dir = self.root / "r"
        other = replace(SPARE_GPU, index=3, uuid=SPARE_GPU.uuid.replace("c", "d"))
        self.inventory.found = GpuListing((MPS_GPU, VGPU_GPU, SPARE_GPU, other))


def test_a_tenant_that_fills_the_file_system_keeps_no_pod_out(
    monkeypatch: pytest.MonkeyPatch, small_tmpfs: Path
) -> None:
    monkeypatch.setattr(SmallNode, "root", small_tmpfs, raising=False)
    config = CONFIG.replace("[1, 2]", "[1, 2, 3]")
    with running_node(monkeypatch, SmallNode, config) as node:
        wait_until(
            lambda: len([*(node.run_dir / "spare").iterdir()]) > PODS_AFTER + 1
        )  # one is taken, one being made
        usage = usage_of(node, node.admit("hostile", PAIR))
        with open(usage, "ab") as file, pytest.raises(OSError, match="No space left"):
            fill(file.fileno())

        both = node.admit("two-gpus", {"vgpu-core": 200})
        limits = region.read_limits(usage_of(node, both).parent).limits
        assert len(limits.devices) == 2
        for number in range(PODS_AFTER):
            pod = node.admit(f"pod-{number}", PAIR)
            assert node.limit(pod).memory_limit_bytes == GIB
            assert region.read_usage(usage_of(node, pod).parent).processes == ()
