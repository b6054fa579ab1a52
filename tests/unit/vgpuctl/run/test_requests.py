"""The words of `vgpuctl run` become limits, or one sentence that names the value."""

from dataclasses import replace

import pytest

from deviceplugin.model.gpus import SickGpu
from libvgpu.errors import AllocationRefused, UsageError
from libvgpu.limits import ComputeMode
from vgpuctl.run.requests import (
    GpuCandidate,
    GpuRequest,
    limits_for,
    parse_core,
    parse_requests,
    require_working,
)

GIB = 1 << 30
SMALL = GpuCandidate(0, "GPU-aaaa", "NVIDIA Small", 16 * GIB, 300 << 20)
LARGE = GpuCandidate(1, "GPU-bbbb", "NVIDIA Large", 80 * GIB, 400 << 20)


@pytest.mark.parametrize(
    "text", ["0", "0%", "101", "150%", "-1", "5.5", "", "half", "٣", "1e1", "50%%"]
)
def test_a_core_share_outside_1_to_100_is_refused_by_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_core(text)

    assert repr(text) in caught.value.message
    assert "from 1 to 100" in caught.value.message


@pytest.mark.parametrize("text", ["50", "50%", " 50 % "])
def test_a_core_share_may_have_its_sign(text: str) -> None:
    assert parse_core(text) == 50


@pytest.mark.parametrize("text", ["0", "-1", "8 bananas", "", "GiB", "8TB", "6", "4294967296"])
def test_a_memory_size_that_is_none_is_refused_by_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_requests([], [text], [])

    assert repr(text) in caught.value.message
    assert caught.value.exit_status == 2


def test_nothing_asked_is_all_of_gpu_0() -> None:
    requests = parse_requests([], [], [])

    assert requests == (GpuRequest("0", None, 100),)
    (limit,) = limits_for(requests, [SMALL, LARGE], ComputeMode.STRICT)
    assert (limit.uuid, limit.memory_limit_bytes, limit.core_percent) == ("GPU-aaaa", 16 * GIB, 100)
    assert limit.context_bytes == SMALL.context_bytes


def test_memory_alone_reserves_no_compute() -> None:
    requests = parse_requests(["0", "1"], ["8GiB"], [])

    assert requests == (GpuRequest("0", 8 * GIB, None), GpuRequest("1", 8 * GIB, None))
    for limit in limits_for(requests, [SMALL, LARGE], ComputeMode.STRICT):
        # As a container of a pod that asks for memory alone.
        assert (limit.core_percent, limit.compute_mode) == (1, ComputeMode.ELASTIC)
        assert limit.reserved_percent == 0
        assert limit.memory_limit_bytes == 8 * GIB
    (off, _) = limits_for(requests, [SMALL, LARGE], ComputeMode.OFF)
    assert (off.core_percent, off.compute_mode) == (100, ComputeMode.OFF)


def test_one_size_holds_for_each_gpu() -> None:
    requests = parse_requests(["0", "1"], ["8GiB"], ["30"])

    assert requests == (GpuRequest("0", 8 * GIB, 30), GpuRequest("1", 8 * GIB, 30))


def test_sizes_given_per_gpu_keep_their_order() -> None:
    requests = parse_requests(["GPU-bbbb", "0"], ["64Gi", "8GiB"], ["30", "70"])

    limits = limits_for(requests, [SMALL, LARGE], ComputeMode.ELASTIC)

    assert [(x.uuid, x.memory_limit_bytes, x.core_percent) for x in limits] == [
        ("GPU-bbbb", 64 * GIB, 30),
        ("GPU-aaaa", 8 * GIB, 70),
    ]
    assert {x.compute_mode for x in limits} == {ComputeMode.ELASTIC}


@pytest.mark.parametrize(
    ("gpus", "memories", "cores", "named"),
    [
        ([], ["1GiB", "2GiB"], [], "--memory is given 2 times for 1 GPU"),
        (["0", "1", "2"], [], ["10", "20"], "--core is given 2 times for 3 GPU"),
        (["0", "0"], [], [], "gpu '0' is named twice"),
        (["first"], [], [], "gpu 'first' is not a GPU"),
        (["-1"], [], [], "gpu '-1' is not a GPU"),
    ],
)
def test_values_that_do_not_fit_together_are_wrong_usage(
    gpus: list[str], memories: list[str], cores: list[str], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        parse_requests(gpus, memories, cores)


def test_more_memory_than_the_gpu_has_is_refused_and_says_how_much_it_has() -> None:
    requests = parse_requests(["0"], [f"{16 * GIB + 1}B"], [])

    with pytest.raises(AllocationRefused) as caught:
        limits_for(requests, [SMALL], ComputeMode.STRICT)

    assert caught.value.exit_status == 1
    assert f"{16 * GIB + 1} bytes" in caught.value.message
    assert f"at most 16 GiB ({16 * GIB} bytes)" in caught.value.message


def test_exactly_the_memory_of_the_gpu_is_granted() -> None:
    (limit,) = limits_for(parse_requests(["0"], ["16GiB"], []), [SMALL], ComputeMode.STRICT)

    assert limit.memory_limit_bytes == SMALL.memory_bytes


@pytest.mark.parametrize("selector", ["2", "GPU-cccc"])
def test_a_gpu_that_is_not_there_is_refused_and_says_which_are(selector: str) -> None:
    with pytest.raises(AllocationRefused, match=r"there are: 0 \(GPU-aaaa\), 1 \(GPU-bbbb\)"):
        limits_for(parse_requests([selector], [], []), [SMALL, LARGE], ComputeMode.STRICT)


def test_one_gpu_under_two_names_is_refused() -> None:
    with pytest.raises(AllocationRefused, match="named already"):
        limits_for(parse_requests(["1", "GPU-bbbb"], [], []), [SMALL, LARGE], ComputeMode.STRICT)


def test_a_gpu_that_tells_no_memory_has_to_be_given_a_size() -> None:
    unsized = replace(SMALL, memory_bytes=0)
    with pytest.raises(AllocationRefused, match="does not tell how much memory") as refused:
        limits_for(parse_requests(["0"], [], []), [unsized], ComputeMode.STRICT)
    assert "--memory" in (refused.value.hint or "")

    (limit,) = limits_for(parse_requests(["0"], ["16GiB"], []), [unsized], ComputeMode.STRICT)
    assert limit.memory_limit_bytes == 16 << 30


@pytest.mark.parametrize("selector", ["2", "02", "2:0", "GPU-cccc"])
def test_a_gpu_that_does_not_work_is_refused_with_the_reason(selector: str) -> None:
    sick = [SickGpu(2, "GPU-cccc", "NVML says: Unknown Error")]
    requests = parse_requests([selector], [], [])

    with pytest.raises(AllocationRefused, match=r"GPU 2 \(GPU-cccc\), which does not work.*Unkn"):
        require_working(requests, [SMALL, LARGE], sick)

    require_working(requests, [SMALL, LARGE], [])
    require_working(parse_requests(["1"], [], []), [SMALL, LARGE], sick)
