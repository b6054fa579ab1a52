"""Who holds whole devices, by what was given and what the kubelet has on record."""

from deviceplugin.model.allocations import Owner
from deviceplugin.model.held_devices import UNRECORDED_S, HeldDevice, after_record, with_given

GPU = "nvidia.com/gpu"
OWNER = Owner("ns", "pod", "c")


def test_what_was_given_is_held_before_it_is_on_record_and_not_for_ever() -> None:
    held = with_given({}, GPU, ["GPU-0", "GPU-1"], 100.0)

    assert after_record(held, [], 100.0 + UNRECORDED_S - 0.1).keys() == held.keys()
    assert after_record(held, [], 100.0 + UNRECORDED_S) == {}


def test_what_is_on_record_is_held_as_long_as_it_is() -> None:
    recorded = HeldDevice(GPU, "GPU-0", OWNER)

    held = after_record(with_given({}, GPU, ["GPU-0"], 0.0), [recorded], 1.0)

    assert held == {(GPU, "GPU-0"): recorded}
    assert after_record(held, [recorded], 1000.0) == held
    assert after_record(held, [], 1000.0) == {}


def test_a_record_that_knows_no_owner_takes_none_away() -> None:
    held = {(GPU, "GPU-0"): HeldDevice(GPU, "GPU-0", OWNER)}

    assert after_record(held, [HeldDevice(GPU, "GPU-0")], 1.0) == held


def test_one_id_under_two_resources_is_two() -> None:
    held = with_given(with_given({}, GPU, ["GPU-0"], 0.0), f"{GPU}.shared", ["GPU-0"], 0.0)

    assert len(held) == 2
