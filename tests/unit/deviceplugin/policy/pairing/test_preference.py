"""Each rule by which units are preferred, and that they are asked in their order."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.units import Half, gpu_of
from deviceplugin.policy.devices import offer
from deviceplugin.policy.devices.exclusive_gpu import clients_most
from deviceplugin.policy.pairing.bound_pods import Expected
from deviceplugin.policy.pairing.placement import Need
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family
from support.node.units import GIB, NOW, layout_of, names, preferred

VGPU, MPS = Family.VGPU, Family.MPS
CORE, MEMORY = Half.CORE, Half.MEMORY


class Node:
    """GPUs with so many GiB each, and what containers have of them."""

    def __init__(
        self, *gib: int, family: Family = VGPU, drains: Sequence[int] = (), major: int = 9
    ) -> None:
        self.family, self.book = family, AllocationBook()
        layout = layout_of(*gib, family=family, major=major)
        gpus = (replace(each, drains=n in drains) for n, each in enumerate(layout.gpus))
        self.layout = replace(layout, gpus=tuple(gpus))

    def has(
        self, gpu: int, core: range = range(0), memory: range = range(0), *, is_open: bool = False
    ) -> Allocation:
        """A container has these units of a GPU."""
        return self.holds(names(gpu, CORE, core), names(gpu, MEMORY, memory), is_open=is_open)

    def holds(
        self, core: Sequence[str], memory: Sequence[str], *, is_open: bool = False
    ) -> Allocation:
        """A container has these units."""
        number = f"id{len(self.book.allocations)}"
        made = Allocation(
            number,
            self.family,
            gpu_of((*core, *memory)[0]),
            GIB,
            tuple(core),
            tuple(memory),
            settled=not is_open,
            changed_s=NOW,
        )
        self.book.put(made)
        return made

    def fill(self, gpu: int) -> Allocation:
        """As many containers have 1 % of a GPU as MPS takes clients; returns one of them."""
        most = clients_most(self.layout.gpus[gpu].gpu)
        made = [self.has(gpu, range(n, n + 1)) for n in range(most)]
        return made[0]

    def gpus(
        self,
        half: Half,
        count: int,
        had: Sequence[str] = (),
        kin: Sequence[Allocation] = (),
        expected: Expected | None = None,
    ) -> list[str]:
        """Returns the GPUs of the units that are preferred."""
        available = [
            unit
            for unit, _ in offer.advertised(self.layout, self.family, half)
            if self.book.is_free(unit) or unit in had
        ]
        chosen = preferred(
            self.layout, self.book, half, count, available, had=had, kin=kin, expected=expected
        )
        assert len(set(chosen)) == count
        return sorted({gpu_of(unit) for unit in chosen})


def whole(*gpus: int) -> tuple[str, ...]:
    """All core units of some GPUs."""
    return tuple(unit for gpu in gpus for unit in names(gpu, CORE, range(100)))


def expects(core: int, memory: int, *gpus: int) -> Expected:
    """What is known of a container, and the GPUs that were chosen for it."""
    return Expected("team/pod", Need(core, memory), tuple(f"GPU-{n}" for n in gpus))


def joining() -> Node:
    """A node on which a container waits for its memory."""
    node = Node(16, 16)
    node.has(1, range(30), is_open=True)
    return node


@pytest.mark.parametrize(
    "node", [Node(16), joining(), Node(16, drains=[0])], ids=["free", "joins", "drains"]
)
def test_a_request_for_nothing_is_refused_whatever_else_holds(node: Node) -> None:
    with pytest.raises(
        AllocationRefused, match=r"vgpu-memory: 0 asks for nothing; ask for 1 to \d+"
    ):
        node.gpus(MEMORY, 0)


def test_the_second_half_joins_the_first() -> None:
    node = joining()
    node.has(0, range(10), range(4))  # so that GPU-0 is the fullest that fits

    assert node.gpus(MEMORY, 4) == ["GPU-1"]


def test_the_second_half_joins_the_first_where_nothing_is_offered_any_more() -> None:
    node = Node(16, 16, drains=[0, 1])
    node.has(1, range(30), is_open=True)

    assert node.gpus(MEMORY, 4) == ["GPU-1"]


def test_a_second_half_that_does_not_fit_is_refused_though_another_gpu_has_room() -> None:
    node = joining()
    node.has(1, memory=range(14))

    with pytest.raises(AllocationRefused, match=r"cannot join 30 core .*: 2 memory units are free"):
        node.gpus(MEMORY, 4)


@pytest.mark.parametrize("count", [1, 200])
def test_where_every_gpu_drains_nothing_is_given(count: int) -> None:
    with pytest.raises(AllocationRefused, match="no GPU of this node is offered for it"):
        Node(16, 16, drains=[0, 1]).gpus(CORE, count)


def test_whole_gpus_may_take_in_the_one_that_the_container_has_units_of() -> None:
    node = Node(16, 16, 16)
    init = node.has(2, range(10))

    assert node.gpus(CORE, 200, had=init.core) == ["GPU-0", "GPU-2"]


def test_whole_gpus_are_refused_for_what_they_are_and_not_for_mps() -> None:
    node = Node(16, 16, family=MPS)
    node.fill(0)
    node.fill(1)

    with pytest.raises(AllocationRefused, match="means whole GPUs, of which 0 of 2 are free"):
        node.gpus(CORE, 200)


def test_chosen_whole_gpus_come_before_one_that_is_as_large_as_both() -> None:
    node = Node(16, 8, 8)
    init = node.has(0, range(10))

    chosen = node.gpus(MEMORY, 16, kin=[init], expected=expects(200, 16, 1, 2))

    assert chosen == ["GPU-1", "GPU-2"]


def test_a_container_gets_the_rest_where_it_has_some() -> None:
    node = Node(16, 16)
    node.has(0, range(50), range(2))  # the fullest that fits

    assert node.gpus(CORE, 20, had=names(1, CORE, range(5))) == ["GPU-1"]


def test_a_container_with_units_of_two_gpus_gets_no_fraction() -> None:
    had = (*names(0, CORE, range(5)), *names(1, CORE, range(5)))

    with pytest.raises(AllocationRefused, match="has units of the GPUs GPU-0, GPU-1 already"):
        Node(16, 16).gpus(CORE, 20, had=had)


def test_a_container_stays_on_its_gpu_and_is_refused_where_that_has_too_many_clients() -> None:
    node = Node(16, 16, family=MPS)
    node.fill(0)

    with pytest.raises(AllocationRefused, match="carries 48 slices already"):
        node.gpus(CORE, 10, had=names(0, CORE, range(90, 95)))


def test_a_container_goes_where_its_init_containers_left_some_of_the_other_half() -> None:
    node = Node(16, 16)
    init = node.has(1, range(60))

    assert node.gpus(MEMORY, 4) == ["GPU-0"]
    assert node.gpus(MEMORY, 4, kin=[init]) == ["GPU-1"]
    assert node.gpus(MEMORY, 4, kin=[init], expected=expects(60, 4, 0)) == ["GPU-1"]


def test_a_container_that_asks_for_one_half_follows_nobody() -> None:
    node = Node(16, 16)
    init = node.has(1, range(60))

    assert node.gpus(MEMORY, 4, kin=[init], expected=expects(0, 4, 0)) == ["GPU-0"]


def test_a_container_follows_nobody_to_a_gpu_without_room() -> None:
    node = Node(16, 16)
    init = node.has(1, range(60), range(13))

    assert node.gpus(MEMORY, 4, kin=[init]) == ["GPU-0"]


def test_a_container_follows_nobody_to_a_full_mps_server() -> None:
    node = Node(16, 16, family=MPS)
    init = node.fill(0)

    assert node.gpus(MEMORY, 4, kin=[init]) == ["GPU-1"]


def test_a_container_follows_nobody_away_from_its_own_units() -> None:
    node = Node(16, 16)
    init = node.has(0, range(60))

    assert node.gpus(MEMORY, 4, had=names(1, MEMORY, range(2)), kin=[init]) == ["GPU-1"]


def test_the_gpu_that_was_chosen_is_taken_and_else_the_best() -> None:
    node = Node(16, 16, 16)
    node.has(0, range(50), range(4))

    assert node.gpus(CORE, 20, expected=expects(20, 4)) == ["GPU-0"]
    assert node.gpus(CORE, 20, expected=expects(20, 4, 2)) == ["GPU-2"]
    assert node.gpus(CORE, 20, expected=expects(20, 4, 1, 2)) == ["GPU-0"]
