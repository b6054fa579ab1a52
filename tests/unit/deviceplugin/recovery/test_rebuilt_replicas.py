"""Replicas under MPS from the kubelet's record alone."""

from dataclasses import replace

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Allocation, Owner
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.layout import Layout, lay_out
from deviceplugin.policy.devices.mps_replicas import replica_allocation
from deviceplugin.recovery.kubelet_checkpoint import KubeletEntry
from deviceplugin.recovery.rebuilt_replicas import rebuild_replicas
from libvgpu.allocation_dirs import AllocationMeta

GPUS = tuple(Gpu(n, f"GPU-{n}", "test", 16 << 30) for n in range(2))
NAME = "nvidia.com/gpu.shared"
TEXT = (
    "version: v1\nsharing: {mps: {renameByDefault: true, resources: [{name: gpu, replicas: %d}]}}\n"
)
META = AllocationMeta("x1", "mps", "kubelet", 70.5, "ns", "pod", "c0", memory_unit_bytes=4 << 30)


def divided(replicas: int = 4) -> Layout:
    return lay_out(parse_config(TEXT % replicas), GPUS)


def entry(replica: str, allocation: str = "x1", pod: str = "p1") -> KubeletEntry:
    mounts = {
        "/run/vgpu/limits": f"/somewhere/allocations/{allocation}/limits",
        "/run/vgpu/lib/ab12/libvgpu.so": "/var/lib/vgpu/lib/ab12/libvgpu.so",
    }
    return KubeletEntry(pod, "c0", NAME, (replica,), mounts)


def remade(
    *entries: KubeletEntry, layout: Layout, known: tuple[Allocation, ...] = ()
) -> tuple[list[Allocation], list[str]]:
    return rebuild_replicas(entries, {"x1": META}, layout, known)


def test_a_replica_is_what_it_was_when_it_was_given() -> None:
    layout = divided()
    resource = layout.resource(NAME)
    assert resource is not None
    given = replica_allocation(layout, resource, ["GPU-1::2"], 0.0, "x1")

    (found,), problems = remade(entry("GPU-1::2"), layout=layout)

    wanted = replace(given, shim_build="ab12", owner=Owner("ns", "pod", "c0"), changed_at=70.5)
    assert (found, problems) == (wanted, [])
    assert remade(entry("GPU-1::2"), layout=layout, known=(found,)) == ([], [])


def test_what_the_config_does_not_divide_so_any_more_is_told() -> None:
    (none, (problem,)) = remade(entry("GPU-1::3"), layout=divided(2))

    assert none == []
    assert f"{NAME} of container c0 of pod p1 is left out: " in problem
    assert "GPU-1::3 is not offered now" in problem


def test_a_replica_that_two_pods_have_is_nobodys() -> None:
    found, problems = remade(entry("GPU-0::0"), entry("GPU-0::0", "x2", "p2"), layout=divided())

    assert found == []
    assert len(problems) == 2


def test_an_entry_of_a_whole_gpu_is_none() -> None:
    whole = replace(entry("GPU-0"), resource="nvidia.com/gpu", mounts={})
    layout = lay_out(parse_config("version: v1\n"), GPUS)

    assert remade(whole, layout=layout) == ([], [])
