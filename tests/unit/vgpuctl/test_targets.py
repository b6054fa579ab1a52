"""Which allocation a word means: an id, the beginning of one, or a pod's name."""

from pathlib import Path

import pytest

from libvgpu.allocation_dirs import AllocationDir, AllocationMeta
from libvgpu.errors import AllocationRefused, UnknownAllocation, UsageError
from vgpuctl.targets import find_allocation


def allocation(name: str, pod: str = "", container: str = "c0") -> AllocationDir:
    namespace, _, pod = pod.partition("/")
    meta = AllocationMeta(
        name,
        "vgpu",
        "kubelet" if pod else "run",
        1.0,
        namespace=namespace,
        pod=pod,
        container=container if pod else "",
        command=() if pod else ("python", "train.py"),
    )
    return AllocationDir(Path("/run") / name, meta)


ALL = (
    allocation("3f2a90b1", "team-a/web"),
    allocation("3f2a77cc", "team-a/web", "c1"),
    allocation("77", "team-b/web"),
    allocation("7755", "team-b/train-0"),
    allocation("run-12-ab"),
)


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("3f2a90b1", "3f2a90b1"),
        ("3f2a9", "3f2a90b1"),
        ("77", "77"),  # whole, though another begins with it
        ("775", "7755"),
        ("run", "run-12-ab"),
        ("team-b/web", "77"),
        ("team-a/web/c1", "3f2a77cc"),
        ("team-b/train-0/c0", "7755"),
    ],
)
def test_a_word_that_means_one_finds_it(word: str, found: str) -> None:
    assert find_allocation(word, ALL).meta.allocation_id == found


@pytest.mark.parametrize("word", ["3f2b", "team-c/web", "team-a/web/c9", "team-a/we", "x"])
def test_one_that_is_not_there_is_named(word: str) -> None:
    with pytest.raises(UnknownAllocation, match=f"'{word}' is not there") as caught:
        find_allocation(word, ALL)

    assert caught.value.exit_status == 1


@pytest.mark.parametrize("word", ["3f2a", "team-a/web"])
def test_several_are_named_with_their_owners(word: str) -> None:
    with pytest.raises(AllocationRefused) as caught:
        find_allocation(word, ALL)

    assert caught.value.message == (
        f"allocation '{word}' may mean 2 of them: 3f2a90b1 (team-a/web/c0), "
        "3f2a77cc (team-a/web/c1)"
    )


def test_many_candidates_are_counted() -> None:
    many = [allocation(f"run-{n}") for n in range(9)]

    with pytest.raises(AllocationRefused, match=r"run-4 \(python train.py\) and 4 more"):
        find_allocation("run-", many)


@pytest.mark.parametrize("word", ["", "/", "a/", "/b", "a//c", "a/b/c/d"])
def test_a_word_of_another_form_is_wrong_usage(word: str) -> None:
    with pytest.raises(UsageError, match="neither an allocation's id"):
        find_allocation(word, ALL)
