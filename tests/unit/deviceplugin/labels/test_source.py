"""What the labels take from the agent's state, as the config and the GPUs make it."""

from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.labels.node_labels import node_labels
from deviceplugin.labels.offered import Machine
from deviceplugin.labels.source import what_is_offered
from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.policy.devices.layout import lay_out
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState

GIB = 1 << 30
FIVE = "resources: [{name: nvidia.com/gpu, replicas: 5}]"
THREE_OF_ONE = "resources: [{name: nvidia.com/gpu, replicas: 3, devices: [1]}]"


def cut(index: int, *profiles: str) -> Gpu:
    """Returns a GPU in MIG mode with these MIG devices."""
    uuid = f"GPU-{index}"
    devices = tuple(
        Gpu(index, f"MIG-{index}-{n}", "test MIG", 4 * GIB, mig=MigPart(uuid, n, profile, n, 0))
        for n, profile in enumerate(profiles)
    )
    return Gpu(index, uuid, "test", 16 * GIB, is_mig_enabled=True, mig_devices=devices)


WHOLE = tuple(Gpu(n, f"GPU-{n}", "test", 16 * GIB) for n in range(8))


def labels_of(folder: Path, text: str, gpus: tuple[Gpu, ...], *sick: str) -> dict[str, str]:
    config = parse_config(f"version: v1\n{text}\n")
    state = NodeState(Checkpoint(folder), lay_out(config, gpus), gpus)
    state.unhealthy = dict.fromkeys(sick, "it is lost")
    found, offered = what_is_offered(state)(config.labels)
    return node_labels(found, offered, Machine())


def told(labels: dict[str, str], resource: str = "gpu") -> tuple[str, ...]:
    keys = ("product", "count", "replicas", "sharing-strategy")
    return tuple(labels[f"nvidia.com/{resource}.{key}"] for key in keys)


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        ("", ("test", "8", "1", "none")),
        (
            f"sharing: {{timeSlicing: {{{FIVE}}}}}",
            ("test-SHARED", "8", "5", "time-slicing"),
        ),
        (
            f"sharing: {{timeSlicing: {{renameByDefault: true, {FIVE}}}}}",
            ("test", "8", "5", "time-slicing"),
        ),
        (
            f"sharing: {{timeSlicing: {{{THREE_OF_ONE}}}}}",
            ("test-SHARED", "8", "3", "time-slicing"),
        ),
        (
            "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}",
            ("test-SHARED", "8", "2", "mps"),
        ),
        ("sharing: {fractional: [{family: vgpu}]}", ("test", "8", "0", "time-slicing")),
        ("sharing: {fractional: [{family: mps}]}", ("test", "8", "0", "mps")),
        ("sharing: {fractional: [{family: vgpu, devices: [0]}]}", ("test", "8", "1", "none")),
    ],
)
def test_eight_gpus(tmp_path: Path, sharing: str, expected: tuple[str, ...]) -> None:
    labels = labels_of(tmp_path, sharing, WHOLE)

    assert told(labels) == expected
    is_by_mps = "mps: {" in sharing
    assert labels["nvidia.com/mps.capable"] == ("true" if is_by_mps else "false")


def test_replicas_by_mps_are_no_fractions(tmp_path: Path) -> None:
    text = "sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"

    labels = labels_of(tmp_path, text, WHOLE)

    assert not [key for key in labels if "free" in key]
    assert labels["nvidia.com/vgpu.capable"] == "false"


def test_single_and_mixed(tmp_path: Path) -> None:
    gpus = (cut(0, *["1g.5gb"] * 7), cut(1, *["1g.5gb"] * 7))
    shared = (
        "flags: {migStrategy: mixed}\n"
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}"
    )

    assert told(labels_of(tmp_path, "flags: {migStrategy: single}", gpus)) == (
        "test-MIG-1g.5gb",
        "14",
        "1",
        "none",
    )
    mixed = labels_of(tmp_path, shared, gpus)
    assert told(mixed) == ("test", "2", "0", "none")
    assert told(mixed, "mig-1g.5gb") == ("test-MIG-1g.5gb-SHARED", "14", "2", "time-slicing")


def test_labels_say_invalid_where_the_layout_offers_nothing(tmp_path: Path) -> None:
    gpus = (cut(0, "1g.5gb"), WHOLE[1])

    labels = labels_of(tmp_path, "flags: {migStrategy: single}", gpus)

    assert told(labels)[:3] == ("test-MIG-INVALID", "0", "0")


def test_a_mig_device_shared_in_fractions_has_room_of_its_own(tmp_path: Path) -> None:
    gpus = (cut(0, "3g.20gb", "1g.5gb"),)
    sharing = "sharing: {fractional: [{family: vgpu, devices: [MIG-0-0]}]}"
    text = f"flags: {{migStrategy: mixed}}\n{sharing}"

    labels = labels_of(tmp_path, text, gpus)
    sick = labels_of(tmp_path, text, gpus, "GPU-0")

    assert labels["nvidia.com/vgpu.free-core.0.0"] == "100"
    assert told(labels, "mig-3g.20gb")[2:] == ("0", "time-slicing")
    assert told(labels, "mig-1g.5gb")[2:] == ("1", "none")
    assert sick["nvidia.com/vgpu.free-core.0.0"] == "0", "its GPU is unhealthy"


def test_mig_devices_that_an_inventory_lists_are_no_gpus(tmp_path: Path) -> None:
    gpu = cut(0, "1g.5gb")
    state = NodeState(
        Checkpoint(tmp_path), lay_out(parse_config("version: v1"), ()), (gpu, *gpu.mig_devices)
    )

    found, _ = what_is_offered(state)(parse_config("version: v1").labels)

    assert [each.uuid for each in found] == [gpu.uuid]


def test_the_domain_is_that_of_the_resources(tmp_path: Path) -> None:
    text = "resourceDomain: x.example\nsharing: {fractional: [{family: vgpu, devices: [1]}]}"

    labels = labels_of(tmp_path, text, (replace(WHOLE[0], name="a"), WHOLE[1]))

    assert labels["x.example/vgpu.free-core.1"] == "100"
    assert told(labels) == ("a", "1", "1", "none")
