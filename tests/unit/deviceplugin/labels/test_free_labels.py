"""Labels of what is free, and values that Kubernetes takes."""

import re
from dataclasses import replace

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.labels.free_labels import free_labels
from deviceplugin.labels.from_layout import free_slices
from deviceplugin.labels.node_labels import node_labels
from deviceplugin.labels.offered import FreeSlice, Machine, Offered, SharingStrategy
from deviceplugin.labels.values import label_value
from deviceplugin.model.allocations import AllocationBook
from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.model.units import Half
from deviceplugin.policy.devices.layout import lay_out
from support.node.units import GIB, holding, names

GPUS = tuple(Gpu(n, f"GPU-{n}", "test", 16 * GIB) for n in range(3))
ALLOWED = re.compile(r"([A-Za-z0-9]([A-Za-z0-9\-_.]{0,61}[A-Za-z0-9])?)?")


def of_config(text: str, book: AllocationBook, unhealthy: set[str]) -> dict[str, str]:
    config = parse_config(f"version: v1\n{text}")
    layout = lay_out(config, GPUS)
    return free_labels(Offered(layout.resource_domain, slices=free_slices(layout, book, unhealthy)))


def test_what_is_free_of_each_gpu_and_the_largest_slice() -> None:
    lone = holding("b", range(40), range(0), "GPU-1")
    book = AllocationBook.of(
        [
            holding("a", range(10), range(12)),
            replace(lone, implicit_units=names(1, Half.MEMORY, range(6))),
        ]
    )  # fmt: skip

    labels = of_config(
        "sharing: {fractional: [{family: vgpu, devices: [0, 1]}, {family: mps, devices: [2]}]}",
        book,
        set(),
    )

    assert labels == {
        "nvidia.com/vgpu.capable": "true",
        "nvidia.com/vgpu.free-core.0": "90",
        "nvidia.com/vgpu.free-memory.0": "4096",
        "nvidia.com/vgpu.free-core.1": "60",
        "nvidia.com/vgpu.free-memory.1": "10240",
        "nvidia.com/vgpu.largest-free-core": "60",
        "nvidia.com/vgpu.largest-free-memory": "10240",
        "nvidia.com/mps.free-core.2": "100",
        "nvidia.com/mps.free-memory.2": "16384",
        "nvidia.com/mps.largest-free-core": "100",
        "nvidia.com/mps.largest-free-memory": "16384",
    }


def test_nothing_is_free_of_a_gpu_that_is_unhealthy() -> None:
    labels = of_config("sharing: {fractional: [{family: vgpu}]}", AllocationBook(), {"GPU-1"})

    assert labels["nvidia.com/vgpu.free-core.1"] == "0"
    assert labels["nvidia.com/vgpu.free-memory.1"] == "0"
    assert labels["nvidia.com/vgpu.free-core.0"] == "100"


def test_nothing_is_free_of_a_gpu_that_drains() -> None:
    config = parse_config("version: v1\nsharing: {fractional: [{family: vgpu}]}")
    layout = lay_out(config, GPUS)
    layout = replace(layout, gpus=(replace(layout.gpus[0], drains=True), *layout.gpus[1:]))

    first, second, _ = free_slices(layout, AllocationBook())

    assert (first.core_percent, first.memory_bytes) == (0, 0)
    assert (second.core_percent, second.memory_bytes) == (100, 16 * GIB)


def test_a_node_that_shares_nothing_says_so_in_its_own_domain() -> None:
    assert of_config("resourceDomain: gpu.example.com", AllocationBook(), set()) == {
        "gpu.example.com/vgpu.capable": "false"
    }


def test_a_mig_device_is_named_by_its_gpu_and_number() -> None:
    config = parse_config("version: v1\nsharing: {fractional: [{family: vgpu}]}")
    device = Gpu(4, "MIG-x", "mig", 4 * GIB, mig=MigPart("GPU-4", 3, "1g.5gb", 1, 0))

    slices = free_slices(lay_out(config, (device,)), AllocationBook())

    assert [part.place for part in slices] == ["4.3"]


def test_the_time_since_when_labels_are_written_is_told_where_it_is_wanted() -> None:
    labels = node_labels(GPUS, Offered(), Machine(), 1_700_000_000)

    assert labels["nvidia.com/gfd.timestamp"] == "1700000000"
    assert "nvidia.com/gfd.timestamp" not in node_labels(GPUS, Offered(), Machine(), None)


@pytest.mark.parametrize(
    ("text", "suffixes", "value"),
    [
        ("NVIDIA A100-SXM4-40GB", (), "NVIDIA-A100-SXM4-40GB"),
        ("Standard PC (i440FX + PIIX, 1996)", (), "Standard-PC-i440FX-PIIX-1996"),
        ("  NVIDIA  RTX™ 6000  Ada ", (), "NVIDIA-RTX-6000-Ada"),
        ("_x_", (), "x"),
        ("(™)", (), ""),
        ("", ("SHARED",), "SHARED"),
        ("a" * 80, (), "a" * 63),
        ("a" * 80, ("MIG", "INVALID"), "a" * 51 + "-MIG-INVALID"),
        ("a" * 62 + " b", (), "a" * 62),
    ],
)
def test_values_are_what_kubernetes_takes(text: str, suffixes: tuple[str, ...], value: str) -> None:
    assert label_value(text, *suffixes) == value
    assert ALLOWED.fullmatch(value)


def test_keys_and_values_of_a_whole_node_are_what_kubernetes_takes() -> None:
    part = FreeSlice("GPU-0", "0.3", "vgpu", SharingStrategy.TIME_SLICING, 5, GIB, GIB)

    labels = node_labels(GPUS, Offered(slices=(part,)), Machine("Größe (1)"), 7)

    for key, value in labels.items():
        assert ALLOWED.fullmatch(value), key
        assert re.fullmatch(r"nvidia\.com/[A-Za-z0-9][A-Za-z0-9\-_.]{0,61}[A-Za-z0-9]", key)
