"""The shares of `vgpuctl run` on one GPU never sum to more than the GPU."""

from pathlib import Path

import pytest

from libvgpu.errors import AllocationRefused
from libvgpu.limits import ComputeMode, DeviceLimit, Family, on_left_over
from support.made_slices import make_slice
from vgpuctl.run import core_sum

A, B = "GPU-a", "GPU-b"
STRICT, ELASTIC, OFF = ComputeMode.STRICT, ComputeMode.ELASTIC, ComputeMode.OFF


def device(uuid: str, percent: int, mode: ComputeMode = STRICT) -> DeviceLimit:
    return DeviceLimit(uuid, 1 << 30, core_percent=percent, compute_mode=mode, weight=percent)


def test_when_nothing_is_left_no_number_is_offered(tmp_path: Path) -> None:
    make_slice(tmp_path, "one", device(A, 100))

    with pytest.raises(AllocationRefused, match="so none is left") as caught:
        core_sum.require_free_share(tmp_path, [device(A, 1)])

    assert "--core" not in str(caught.value.hint).replace("without --core", "")
    assert "give --memory without --core" in str(caught.value.hint)


def test_shares_that_are_not_held_in_time_are_not_counted(tmp_path: Path) -> None:
    make_slice(tmp_path, "off", device(A, 100, OFF))
    make_slice(tmp_path, "mps", device(A, 100), family=Family.MPS)

    core_sum.require_free_share(tmp_path, [device(A, 100)])
    make_slice(tmp_path, "one", device(A, 100))
    core_sum.require_free_share(tmp_path, [device(A, 100, OFF)])


def test_what_others_leave_over_is_promised_to_nobody(tmp_path: Path) -> None:
    make_slice(tmp_path, "rest", on_left_over(device(A, 100)))

    core_sum.require_free_share(tmp_path, [device(A, 100)])
    make_slice(tmp_path, "one", device(A, 100))
    core_sum.require_free_share(tmp_path, [on_left_over(device(A, 100))])
    make_slice(tmp_path, "one percent", device(B, 1, ELASTIC))
    with pytest.raises(AllocationRefused, match="have 1 % of it, so at most 99 %"):
        core_sum.require_free_share(tmp_path, [device(B, 100)])


def test_one_that_is_stopped_meanwhile_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_sum, "_PATIENCE_S", 0.05)

    with (
        core_sum.admitting(tmp_path),
        pytest.raises(AllocationRefused, match="making its slice"),
        core_sum.admitting(tmp_path),
    ):
        pass
