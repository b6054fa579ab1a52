"""What counts as another device plugin of our GPUs, and what does not."""

from collections.abc import Collection, Mapping

import pytest

from deviceplugin.policy.devices.foreign_plugins import (
    DevicePlugins,
    ForeignPlugins,
    foreign_plugins,
)

ONE, TWO = "GPU-11111111-aaaa", "GPU-22222222-bbbb"
OURS = ("nvidia.com/vgpu-core", "nvidia.com/gpu.shared")


def found(registered: Mapping[str, Collection[str]], *sockets: str) -> ForeignPlugins:
    return foreign_plugins(DevicePlugins(registered, sockets), OURS, (ONE, TWO))


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        ([TWO, ONE], (ONE, TWO)),
        ([f"{ONE}::0", f"{ONE}::1"], (ONE,)),
        ([f"{TWO}-0"], (TWO,)),
    ],
)
def test_a_device_of_another_resource_on_a_gpu_of_ours(
    devices: list[str], gpus: tuple[str, ...]
) -> None:
    assert found({"nvidia.com/gpu": devices}).resources == (("nvidia.com/gpu", gpus),)


@pytest.mark.parametrize(
    "registered",
    [
        {},
        {"nvidia.com/gpu": []},
        {"nvidia.com/gpu": ["GPU-99999999-cccc"]},
        {"intel.com/gpu": ["card0", "0"]},
        {name: [ONE] for name in OURS},
        # Not served now, and still in the kubelet's file; of another domain before.
        {"nvidia.com/mps-memory": [f"{ONE}/3"], "example.com/vgpu-memory": [ONE]},
    ],
)
def test_other_devices_and_our_own_resources_are_no_matter(
    registered: Mapping[str, Collection[str]],
) -> None:
    assert not found(registered)


def test_nvidias_socket_tells_where_the_resource_has_the_same_name() -> None:
    seen = found(
        {"nvidia.com/gpu.shared": [ONE]},
        "nvidia-gpu-3f9a1c07.sock",
        "nvidia.com-vgpu-core.sock",
        "nvidia-gpu.sock",
        "intel.sock",
    )

    assert seen.sockets == ("nvidia-gpu-3f9a1c07.sock", "nvidia-gpu.sock")
    assert seen


def test_the_sentence_names_what_was_seen_and_not_too_much() -> None:
    many = tuple(f"GPU-{i}" for i in range(9))
    seen = foreign_plugins(DevicePlugins({"nvidia.com/gpu": many}, ("nvidia-gpu.sock",)), (), many)

    assert seen.sentence() == (
        "another device plugin hands out the same GPUs: resource nvidia.com/gpu has "
        "GPU-0, GPU-1, GPU-2, GPU-3 and 5 more; "
        "NVIDIA's device plugin answers on nvidia-gpu.sock"
    )
