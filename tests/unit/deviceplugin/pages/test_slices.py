"""The page of slices says the same to who reads it as the files did, without what is secret."""

import json
from pathlib import Path

import msgspec
import pytest

from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.pages.slices import NodeSlices, node_gpus, read_page, without_commands
from libvgpu import allocation_dirs, region
from libvgpu.errors import VgpuError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.slices import DAMAGED, read_slices

GPU = "GPU-aaaaaaaa-0000"


def _allocate(run_dir: Path, allocation_id: str, source: str = "kubelet", **more: object) -> Path:
    directory = run_dir / "allocations" / allocation_id
    directory.parent.mkdir(parents=True, exist_ok=True)
    limit = DeviceLimit(GPU, 4 << 30, core_percent=30, compute_mode=ComputeMode.ELASTIC)
    region.create(directory, ContainerLimits(allocation_id, Family.VGPU, (limit,)))
    meta = allocation_dirs.AllocationMeta(allocation_id, "vgpu", source, 1000.5, **more)  # type: ignore[arg-type]
    allocation_dirs.write_meta(directory, meta)
    return directory


def _page(run_dir: Path) -> bytes:
    slices = without_commands(read_slices(run_dir))
    return msgspec.json.encode(NodeSlices("n1", 12.5, 3.25, (), slices))


def test_slices_are_the_same_behind_the_page(tmp_path: Path) -> None:
    _allocate(tmp_path, "a1", namespace="team", pod="train", container="c")
    damaged = _allocate(tmp_path, "a2", namespace="team", pod="other", container="c")
    (damaged / "limits").chmod(0o600)
    (damaged / "limits").write_bytes(b"nothing of ours")

    page = read_page(_page(tmp_path))

    assert page.slices == read_slices(tmp_path)
    assert [each.state for each in page.slices] == ["idle", DAMAGED]
    assert (page.node, page.at, page.clock_s) == ("n1", 12.5, 3.25)


def test_what_a_run_was_called_with_stays_on_the_node(tmp_path: Path) -> None:
    _allocate(tmp_path, "run-1", "run", name="mine", command=("serve", "--token=hidden"))

    page = _page(tmp_path)

    assert b"hidden" not in page
    assert [(s.meta.name, s.meta.command) for s in read_page(page).slices] == [("mine", ())]


def test_gpus_are_told_with_health_and_mig_numbers() -> None:
    part = MigPart("GPU-a", 1, "1g.5gb", 7, 0)
    gpus = [
        Gpu(0, "GPU-a", "A100", 40, is_mig_enabled=True),
        Gpu(0, "MIG-a", "A100", 5, mig=part),
        Gpu(1, "GPU-b", "A100", 40),
    ]
    told = node_gpus(gpus, "driver", {"GPU-b": "XID 79"}, {"MIG-a": "a container"})
    assert [(g.index, g.mig_number, g.is_cut, g.health, g.drains) for g in told] == [
        (0, None, True, "", ""),
        (0, 1, False, "", "a container"),
        (1, None, False, "XID 79", ""),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b'{"version": 2, "slices": {}}', "of version 2", id="newer"),
        pytest.param(b"no such page", "not a page of slices", id="text"),
        pytest.param(b'{"version": 1}', "missing required field", id="nothing-in-it"),
    ],
)
def test_another_page_is_refused_with_a_sentence(content: bytes, said: str) -> None:
    with pytest.raises(VgpuError, match=said):
        read_page(content)


def test_what_a_newer_agent_adds_is_passed_over(tmp_path: Path) -> None:
    _allocate(tmp_path, "a1")
    page = json.loads(_page(tmp_path))
    page["more"] = page["slices"][0]["more"] = page["slices"][0]["usage"]["more"] = 1
    assert read_page(json.dumps(page).encode()).slices == read_slices(tmp_path)
