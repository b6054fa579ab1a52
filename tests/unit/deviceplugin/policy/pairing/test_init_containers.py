"""Units that the kubelet gives to an init container and again to the containers after it."""

from dataclasses import replace

from deviceplugin.model.allocations import Allocation, AllocationBook, Owner
from deviceplugin.model.units import Half, gpu_of
from deviceplugin.policy.devices import offer
from deviceplugin.policy.pairing import pairing
from deviceplugin.policy.pairing.podresources_listing import Listed, conflict, examine
from libvgpu.limits import Family
from support.node.units import NOW, layout_of, names, preferred

VGPU = Family.VGPU
MAIN = Owner("team", "pod", "main")
LAYOUT = layout_of(16)
(GPU,) = LAYOUT.gpus


class Pod:
    """Gives units as the kubelet does; every half of every container is one call."""

    def __init__(self) -> None:
        self.book, self.made = AllocationBook(), 0

    def give(self, half: Half, numbers: range) -> Allocation:
        self.made += 1
        units = names(0, half, numbers)
        for settled in pairing.settle_before(self.book, VGPU, half):
            self.book.put(settled)
        given = pairing.allocate(LAYOUT, self.book, VGPU, half, units, NOW, f"id{self.made}")
        self.book.put(given)
        return given

    def pair(self, core: range, memory: range) -> Allocation:
        self.give(Half.CORE, core)
        return self.give(Half.MEMORY, memory)


def listed(allocation: Allocation) -> Listed:
    return Listed(MAIN, frozenset((*allocation.core, *allocation.memory)))


def test_a_later_container_has_a_slice_of_its_own_from_the_same_units() -> None:
    pod = Pod()
    init = pod.pair(range(50), range(8))
    main = pod.pair(range(10, 30), range(4))

    assert main.allocation_id != init.allocation_id
    assert (len(main.core), len(main.memory), main.whole) == (20, 4, True)
    assert pod.book.holders("GPU-0::c10") == [init, main]
    assert pod.book.has_passed_on(init)
    assert not pod.book.has_passed_on(main)
    assert offer.rooms([GPU], pod.book, Half.CORE, (), (), set())["GPU-0"].units == ()


def test_the_listed_container_is_the_later_one_and_the_init_container_stays() -> None:
    pod = Pod()
    init, main = pod.pair(range(50), range(8)), pod.pair(range(20), range(4))

    found = examine(pod.book, [listed(main)], NOW + 3600, lambda _: False)

    assert [(h.allocation_id, h.owner) for h in found.identified] == [(main.allocation_id, MAIN)]
    assert found.ended == ()
    assert conflict(pod.book, init, [listed(main)]) is None
    assert conflict(pod.book, main, [listed(main)]) is None

    pod.book.drop(main.allocation_id)  # the pod has ended: so has its init container
    later = examine(pod.book, [], NOW + 3600, lambda _: False)
    later = examine(AllocationBook.of(later.changed), [], NOW + 7200, lambda _: False)
    assert [h.allocation_id for h in later.ended] == [init.allocation_id]


def test_units_that_two_containers_show_stop_both_from_starting() -> None:
    """kubernetes#137534 in the instant before anybody listed the first one."""
    pod = Pod()
    first, second = pod.pair(range(50), range(8)), pod.pair(range(50), range(8))
    both = [listed(first), replace(listed(second), owner=Owner("team", "other", "main"))]

    for allocation in (first, second):
        problem = conflict(pod.book, allocation, both)
        assert problem is not None
        assert "record for team/pod/main and team/other/main at once" in problem


def test_the_same_half_of_the_same_units_is_the_next_containers() -> None:
    pod = Pod()
    init, main = pod.give(Half.CORE, range(20)), pod.give(Half.CORE, range(20))
    pair = pod.give(Half.MEMORY, range(8))

    assert main.allocation_id != init.allocation_id
    assert (pair.allocation_id, len(pair.core), len(pair.memory)) == (main.allocation_id, 20, 8)
    (alone,) = (h for h in pod.book.allocations.values() if h.allocation_id != main.allocation_id)
    assert (alone.settled, len(alone.core), len(alone.memory)) == (True, 20, 0)


def test_what_an_init_container_has_left_decides_where_a_later_one_goes() -> None:
    layout = layout_of(16, 16)
    pod = Pod()
    init = pod.pair(range(60), range(4))
    pod.pair(range(20), range(4))  # all its memory and some of its core went to the next one

    def gpu(*kin: Allocation) -> str:
        return gpu_of(preferred(layout, pod.book, Half.MEMORY, 2, kin=kin)[0])

    assert gpu() == "GPU-1", "it has the most core free"
    assert gpu(init) == "GPU-0", "40 core of the pod are there, and come first"
