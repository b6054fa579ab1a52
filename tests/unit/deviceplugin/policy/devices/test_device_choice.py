"""Which devices and replicas a container gets, and which it may not have."""

from collections.abc import Callable

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.gpus import Gpu
from deviceplugin.model.whole_devices import Spread
from deviceplugin.policy.devices.device_choice import first_by_index, given_devices, prefer_devices
from deviceplugin.policy.devices.device_resources import DeviceResource
from deviceplugin.policy.devices.layout import lay_out
from libvgpu.errors import AllocationRefused

GPUS = tuple(Gpu(n, f"GPU-{n}", "test", 16 << 30) for n in range(3))
REPLICATED = "sharing: {timeSlicing: {%sresources: [{name: gpu, replicas: 2%s}]}}\n"


def resource(text: str) -> DeviceResource:
    (found,) = lay_out(parse_config("version: v1\n" + text), GPUS).resources
    return found


WHOLE = resource("")
REPLICAS = resource(REPLICATED % ("", ""))
ONE_EACH = resource(REPLICATED % ("failRequestsGreaterThanOne: true, ", ""))
MIXED = resource(REPLICATED % ("", ", devices: 1"))


def prefer(
    of: DeviceResource,
    available: list[str],
    count: int,
    must: tuple[str, ...] = (),
    spread: Spread = Spread.DISTRIBUTED,
) -> list[str]:
    return prefer_devices(of, available, must, count, spread, first_by_index)


ALL = [f"GPU-{n}::{r}" for n in range(3) for r in range(2)]


def test_the_device_with_the_fewest_taken_comes_first_or_with_the_most() -> None:
    free = [each for each in ALL if each != "GPU-0::1"]

    assert prefer(REPLICAS, free, 1) == ["GPU-1::0"]
    assert prefer(REPLICAS, free, 1, spread=Spread.PACKED) == ["GPU-0::0"]


@pytest.mark.parametrize("spread", Spread)
def test_several_replicas_of_one_container_are_of_several_devices(spread: Spread) -> None:
    assert sorted(prefer(REPLICAS, ALL, 3, spread=spread)) == ["GPU-0::0", "GPU-1::0", "GPU-2::0"]
    assert len(set(prefer(REPLICAS, ALL, 5, spread=spread))) == 5


def test_what_a_container_has_already_is_among_them_and_its_device_comes_last() -> None:
    chosen = prefer(REPLICAS, ALL, 3, ("GPU-0::1",))

    assert chosen == ["GPU-0::1", "GPU-1::0", "GPU-2::0"]


def test_whole_gpus_are_asked_of_what_knows_how_close_they_are() -> None:
    assert prefer(WHOLE, ["GPU-2", "GPU-1"], 2) == ["GPU-1", "GPU-2"]
    assert prefer(WHOLE, ["GPU-2", "GPU-1"], 2, ("GPU-2",))[0] in ("GPU-1", "GPU-2")


def test_a_resource_may_have_whole_devices_and_replicas() -> None:
    assert sorted(prefer(MIXED, ["GPU-0::0", "GPU-0::1", "GPU-1", "GPU-2"], 3)) == [
        "GPU-0::0",
        "GPU-1",
        "GPU-2",
    ]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "too few": (lambda: prefer(REPLICAS, ALL[:1], 2), "2 are not free, 1 are offered now"),
    "several": (lambda: prefer(ONE_EACH, ALL, 2), "2 replicas were asked for"),
    "stranger": (lambda: prefer(WHOLE, ["GPU-1"], 2, ("GPU-9",)), "GPU-9 is not offered now"),
    "given several": (lambda: given_devices(ONE_EACH, ALL[:2]), "failRequestsGreaterThanOne"),
    "given none": (lambda: given_devices(WHOLE, []), "names no device; ask for at least 1"),
    "given twice": (lambda: given_devices(WHOLE, ["GPU-0", "GPU-0"]), "names a device twice"),
    "given a stranger": (lambda: given_devices(WHOLE, ["GPU-7"]), "GPU-7 is not offered now"),
    "given a replica": (lambda: given_devices(WHOLE, ["GPU-0::1"]), "GPU-0::1 is not offered now"),
}


@pytest.mark.parametrize(("ask", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_given_is_refused(ask: Callable[[], object], said: str) -> None:
    with pytest.raises(AllocationRefused) as caught:
        ask()

    assert said in caught.value.message
    assert caught.value.message.startswith("nvidia.com/gpu")
