"""Replicas under MPS as units: equal, and of nobody else."""

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.allocations import Allocation
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.layout import Layout, lay_out
from deviceplugin.policy.devices.mps_replicas import replica_allocation
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

GPU = Gpu(0, "GPU-0", "test", (16 << 30) + 12345)
TEXT = "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: %d%s}]}}\n"


def divided(replicas: int) -> Layout:
    return lay_out(parse_config(TEXT % (replicas, "")), (GPU,))


def given(layout: Layout, number: int) -> Allocation:
    (resource,) = layout.resources
    return replica_allocation(layout, resource, [f"GPU-0::{number}"], 0.0, f"a{number}")


@pytest.mark.parametrize("replicas", [2, 3, 4, 7, 48])
def test_all_replicas_are_equal_and_share_no_unit(replicas: int) -> None:
    layout = divided(replicas)

    found = [given(layout, number) for number in range(replicas)]

    units = [unit for each in found for unit in each.implicit_units]
    assert len(units) == len(set(units)) == replicas * (100 // replicas + 1)
    assert {(each.family, each.memory_unit_bytes) for each in found} == {
        (Family.MPS, (16 << 30) // replicas // (1 << 20) * (1 << 20))
    }
    assert all(each.settled and not each.core and not each.memory for each in found)


def test_a_gpu_that_is_not_divided_has_none() -> None:
    layout = divided(4)
    (resource,) = layout.resources

    with pytest.raises(AllocationRefused, match="GPU-0 is not under MPS now"):
        replica_allocation(Layout("nvidia.com", ()), resource, ["GPU-0::1"], 0.0, "a")
