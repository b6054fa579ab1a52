"""A resource has no more units, on all GPUs together, than fit the kubelet's messages."""

import tracemalloc

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.transport import REQUEST_LIMIT_BYTES
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from deviceplugin.model.whole_devices import Spread
from deviceplugin.policy.devices.device_choice import given_devices, prefer_devices
from deviceplugin.policy.devices.layout import Layout, lay_out
from libvgpu.errors import ConfigError

H100_BYTES = 81559 << 20
#: The longest that there are: MIG devices of older drivers.
LONGEST_UUID = "MIG-GPU-00000000-0000-0000-0000-000000000000/13/0"
KUBELET_READS_BYTES = 4 << 20


def laid_out(sharing: str, gpus: int) -> Layout:
    there = tuple(Gpu(i, f"GPU-{i:036}", f"H100 {i % 2}", H100_BYTES) for i in range(gpus))
    return lay_out(parse_config(f"version: v1\n{sharing}\n", "c"), there)


def replicas(count: int | str, rest: str = "") -> str:
    entry = f"{{name: nvidia.com/gpu, replicas: {count}{rest}}}"
    return f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}"


def test_the_most_units_fit_every_message() -> None:
    ids = [f"{LONGEST_UUID}::{n}" for n in range(MOST_UNITS_PER_RESOURCE)]
    listed = pb.ListAndWatchResponse(devices=[pb.Device(ID=i, health="Unhealthy") for i in ids])
    for device in listed.devices:
        device.topology.nodes.add(ID=127)
    asked = pb.PreferredAllocationRequest()
    asked.container_requests.add(
        available_deviceIDs=ids, must_include_deviceIDs=ids, allocation_size=len(ids)
    )

    assert listed.ByteSize() < KUBELET_READS_BYTES
    assert asked.ByteSize() < min(REQUEST_LIMIT_BYTES, KUBELET_READS_BYTES)


TOO_MANY = {
    "one GPU": (replicas(20_001), 1, "replicas is 20001, allowed are 2 to 20000"),
    "that of the report": (replicas(24_576), 1, "replicas is 24576, allowed are 2 to 20000"),
    "a billion": (replicas(10**9), 8, "replicas is 1000000000, allowed are 2 to 20000"),
    "no number of ours": (replicas("9" * 4000), 1, "is too large a number"),
    "all GPUs": (
        replicas(1251),
        16,
        (
            "replicas is 1251, which on 16 devices makes 20016 units of nvidia.com/gpu in all, "
            "and a kubelet reads at most 20000 in one message; allowed here are 1250 replicas"
        ),
    ),
    "with those that stay whole": (
        replicas(20_000, ", devices: 1"),
        2,
        "on 1 devices makes 20001 units of nvidia.com/gpu in all",
    ),
    "two resources of one name": (
        (
            "resources: {gpus: [{pattern: H100 0, name: a}, {pattern: H100 1, name: b}]}\n"
            "sharing: {timeSlicing: {resources: [{name: a, rename: c, replicas: 6000}, "
            "{name: b, rename: c, replicas: 6000}]}}"
        ),
        4,
        "allowed here are 4000 replicas",
    ),
    "memory units": (
        "sharing: {fractional: [{family: vgpu, memoryUnit: 1Mi}]}",
        16,
        (
            "makes 1304944 units on the 16 GPUs of the family, and a kubelet reads at most 20000 "
            "in one message; choose 66Mi or more"
        ),
    ),
}


@pytest.mark.parametrize(("sharing", "gpus", "said"), TOO_MANY.values(), ids=TOO_MANY.keys())
def test_more_are_refused_with_the_number_and_the_most(sharing: str, gpus: int, said: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as caught:
            laid_out(sharing, gpus)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert said in caught.value.message
    assert most_bytes < 8 << 20  # refused before anything is made of them


@pytest.mark.parametrize(
    ("sharing", "gpus"),
    [
        (replicas(20_000), 1),
        (replicas(1250), 16),
        (replicas(19_999, ", devices: 1"), 2),
        ("sharing: {fractional: [{family: vgpu, memoryUnit: 66Mi}]}", 16),
    ],
)
def test_as_many_as_are_allowed_are_offered(sharing: str, gpus: int) -> None:
    layout = laid_out(sharing, gpus)

    units = sum(len(device.ids) for each in layout.resources for device in each.devices)
    assert 19_000 < units + sum(each.memory_units for each in layout.gpus) <= 20_000


def test_each_of_them_is_found_by_its_id() -> None:
    (resource,) = laid_out(replicas(1000), 4).resources
    ids = [each for device in resource.devices for each in device.ids]

    assert all(device is resource.device_of(i) for device in resource.devices for i in device.ids)
    for strange in ("::1000", "::01", "::-1", "::", "::²", "::" + "1" * 5000, ""):
        assert resource.device_of(resource.devices[0].gpu.uuid + strange) is None
    chosen = prefer_devices(
        resource, ids, [], 5, Spread.DISTRIBUTED, lambda uuids, count, required: tuple(uuids)
    )
    assert len(given_devices(resource, chosen)) == 4
