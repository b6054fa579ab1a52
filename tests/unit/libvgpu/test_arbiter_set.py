"""Every GPU that needs an arbiter has one, in whichever process holds the GPU's lock."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu import region
from libvgpu.arbiter_set import ArbiterChange, ArbiterSet
from libvgpu.errors import RegionError
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from support.shim.arbiters import GpuLocks, NotedArbiter

A, B = "GPU-a", "GPU-b"
STRICT, ELASTIC = ComputeMode.STRICT, ComputeMode.ELASTIC


class ArbiterWorld:
    """A run directory, and the processes that look after it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.locks = run_dir, GpuLocks()
        self.made: list[NotedArbiter] = []
        (run_dir / "allocations").mkdir()

    def process(self, *uuids: str) -> ArbiterSet:
        return ArbiterSet(self.run_dir, uuids or None, make=self._make, hold=self.locks.hold)

    def _make(self) -> NotedArbiter:
        self.made.append(NotedArbiter())
        return self.made[-1]

    def slice(self, name: str, mode: ComputeMode = STRICT, **percents: int) -> None:
        """Makes a slice, or changes it; GPUs are named by their last letter."""
        devices = tuple(
            DeviceLimit(
                f"GPU-{letter}", 1 << 30, core_percent=percent, compute_mode=mode, weight=percent
            )
            for letter, percent in percents.items()
        )
        limits = ContainerLimits(name, Family.VGPU, devices)
        directory = self.run_dir / "allocations" / name
        if directory.exists():
            region.write_limits(directory, limits)
        else:
            region.create(directory, limits)

    def end(self, name: str) -> None:
        shutil.rmtree(self.run_dir / "allocations" / name)


@pytest.fixture
def world(tmp_path: Path) -> ArbiterWorld:
    return ArbiterWorld(tmp_path)


def test_one_slice_of_a_fixed_share_needs_no_arbiter(world: ArbiterWorld) -> None:
    world.slice("one", a=30)

    assert world.process().look() == []
    assert (world.made, world.locks.taken) == ([], set())


def test_two_slices_of_a_gpu_get_one_with_their_weights(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", b=10, a=70)
    arbiters = world.process()

    changes = arbiters.look()

    assert changes == [ArbiterChange(A, "arbiter started")]
    (arbiter,) = world.made
    assert arbiter.calls == [("add", "one", 0), ("add", "two", 1)]
    assert arbiters.uuids == world.locks.taken == {A}


def test_a_lone_slice_that_may_borrow_is_told_when_the_gpu_is_idle(world: ArbiterWorld) -> None:
    world.slice("one", ELASTIC, a=30)

    world.process().look()

    assert world.made[0].weights == {"one": 30}


def test_it_follows_slices_as_they_come_go_and_change(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", a=20)
    arbiters = world.process()
    arbiters.look()
    (arbiter,) = world.made

    world.slice("three", a=40)
    world.slice("one", a=10)
    arbiters.look()
    assert arbiter.weights == {"one": 10, "two": 20, "three": 40}
    assert arbiter.calls[2:] == [("add", "three", 0)]

    world.slice("two", ComputeMode.OFF, a=20)
    arbiters.look()
    assert arbiter.weights == {"one": 10, "three": 40}

    calls = len(arbiter.calls)
    assert arbiters.look() == []
    assert len(arbiter.calls) == calls, "a look at what is as before changes nothing"

    world.end("three")
    assert arbiters.look() == [ArbiterChange(A, "arbiter stopped: nobody shares")]
    assert arbiter.calls[-1] == ("stop",)
    assert arbiters.uuids == world.locks.taken == set()


def test_a_slice_made_anew_is_let_go_and_taken_in(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", a=20)
    arbiters = world.process()
    arbiters.look()
    with open(world.run_dir / "allocations/one/limits", "rb"):  # so that its inode is not reused
        world.end("one")
        world.slice("one", a=30)

        arbiters.look()

    assert world.made[0].calls[2:] == [("remove", "one"), ("add", "one", 0)]


def test_every_contended_gpu_has_its_own(world: ArbiterWorld) -> None:
    world.slice("one", a=30, b=50)
    world.slice("two", a=70, b=50)

    world.process().look()

    assert sorted(a.weights["two"] for a in world.made) == [50, 70]


def test_only_the_gpus_cared_for_are_taken(world: ArbiterWorld) -> None:
    world.slice("one", a=30, b=50)
    world.slice("two", a=70, b=50)

    world.process(B).look()

    assert world.locks.taken == {B}


@pytest.mark.parametrize("ends", [ArbiterSet.stop, lambda _: None], ids=["stopped", "killed"])
def test_the_next_takes_over_when_the_holder_ends(
    world: ArbiterWorld, ends: Callable[[ArbiterSet], None]
) -> None:
    world.slice("one", a=30)
    world.slice("two", a=70)
    first, second = world.process(A), world.process(A)
    first.look()
    assert second.look() == [ArbiterChange(A, "arbiter left to another process")]
    assert second.look() == [], "it is said once"
    assert len(world.made) == 1

    ends(first)
    world.locks.taken.clear()  # as the kernel does for the dead

    assert second.look() == [ArbiterChange(A, "arbiter started")]
    assert world.made[1].weights == {"one": 30, "two": 70}


def test_after_a_stop_a_look_takes_the_gpu_again(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", a=70)
    arbiters = world.process()
    arbiters.look()

    arbiters.stop()
    assert world.locks.taken == set()
    arbiters.look()

    assert [a.weights for a in world.made] == [{}, {"one": 30, "two": 70}]


def test_a_slice_that_cannot_be_taken_in_costs_the_others_nothing(world: ArbiterWorld) -> None:
    for name in ("one", "two", "three"):
        world.slice(name, a=30)
    made = NotedArbiter(refused={"one"})
    arbiters = ArbiterSet(world.run_dir, make=lambda: made, hold=world.locks.hold)

    assert arbiters.look()[1:] == [ArbiterChange(A, "one not arbitrated", "one is damaged")]
    assert arbiters.look() == [], "it is said once"
    assert made.weights == {"two": 30, "three": 30}

    made.refused.clear()
    arbiters.look()
    assert made.weights == {"one": 30, "two": 30, "three": 30}


def test_a_slice_that_ends_while_it_is_taken_in_is_no_failure(world: ArbiterWorld) -> None:
    class EndsOne(NotedArbiter):
        def add(self, directory: Path, device_index: int) -> None:
            if directory.name == "one":
                world.end("one")
                raise RegionError("there is no limits")
            super().add(directory, device_index)

    for name in ("one", "two", "three"):
        world.slice(name, a=30)
    made = EndsOne()
    arbiters = ArbiterSet(world.run_dir, make=lambda: made, hold=world.locks.hold)

    assert arbiters.look() == [ArbiterChange(A, "arbiter started")]

    assert made.weights == {"two": 30, "three": 30}
    assert arbiters.look() == []


def test_an_arbiter_that_cannot_start_leaves_the_gpu_to_others(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", a=70)

    def fail() -> NotedArbiter:
        raise RegionError("no threads left")

    changes = ArbiterSet(world.run_dir, make=fail, hold=world.locks.hold).look()

    assert changes == [ArbiterChange(A, "arbiter cannot be started", "no threads left")]
    assert world.locks.taken == set()


def test_a_slice_is_withheld_by_the_arbiter_of_its_gpu_alone(world: ArbiterWorld) -> None:
    world.slice("one", a=30)
    world.slice("two", a=70)
    arbiters = world.process()
    arbiters.look()
    (made,) = world.made

    assert arbiters.withhold(A, made_directory(made, "one"), 2.5)
    assert made.calls[-1] == ("withhold", "one", 2.5)
    assert not arbiters.withhold("GPU-other", made_directory(made, "one"), 2.5)


def made_directory(made: NotedArbiter, name: str) -> Path:
    return next(path for path in made.places if path.name == name)
