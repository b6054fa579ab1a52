"""Whose second half it is: the service against a kubelet that admits pod after pod."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deviceplugin.core.parts import Sources
from deviceplugin.model.units import Half
from deviceplugin.policy.pairing.pairing import JOIN_WINDOW_S
from deviceplugin.policy.pairing.podresources_listing import Listed
from libvgpu.errors import AllocationRefused
from support.node.core import VGPU, Kubelet, fractional, some_gpus


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path, fractional("family: vgpu"), some_gpus(2))


def test_the_halves_of_one_container_meet(kubelet: Kubelet) -> None:
    kubelet.ask("other", Half.CORE, 30)
    kubelet.ask("other", Half.MEMORY, 3)

    assert kubelet.ask("pod", Half.CORE, 60) == kubelet.ask("pod", Half.MEMORY, 8)

    assert kubelet.shapes() == [(30, 3), (60, 8)]


def test_a_pod_that_is_first_listed_with_its_first_half_is_not_newer(
    kubelet: Kubelet,
) -> None:
    show = kubelet.show
    kubelet.show = lambda: [each for each in show() if each.units]  # type: ignore[method-assign]

    assert kubelet.ask("pod", Half.CORE, 60) == kubelet.ask("pod", Half.MEMORY, 8)

    assert kubelet.shapes() == [(60, 8)]


def test_the_half_of_a_newer_pod_is_its_own_after_one_that_was_refused(
    kubelet: Kubelet,
) -> None:
    kubelet.ask("lone", Half.CORE, 30)
    refuse(lambda: kubelet.ask("refused", Half.CORE, 150))
    del kubelet.held["refused", "c0"]
    kubelet.ask("pair", Half.MEMORY, 8)
    kubelet.ask("pair", Half.CORE, 60)

    assert kubelet.shapes() == [(30, 0), (60, 8)]


def test_another_pod_under_a_name_that_was_there_is_newer(kubelet: Kubelet) -> None:
    """podresources tells no UIDs; the pod that stands there lacks what the old one had."""
    kubelet.ask("set-0", Half.CORE, 10)
    kubelet.ask("set-0", Half.MEMORY, 1)
    kubelet.ask("failed", Half.CORE, 30)
    del kubelet.held["failed", "c0"], kubelet.held["set-0", "c0"]
    kubelet.ask("set-0", Half.MEMORY, 8)
    kubelet.ask("set-0", Half.CORE, 60)

    assert (60, 8) in kubelet.shapes()


def test_a_pod_that_has_got_more_since_is_the_same(kubelet: Kubelet) -> None:
    kubelet.ask("pod", Half.CORE, 10)
    kubelet.ask("pod", Half.MEMORY, 1)

    kubelet.ask("pod", Half.CORE, 60)
    kubelet.ask("pod", Half.MEMORY, 8)

    assert kubelet.shapes() == [(10, 1), (60, 8)]


def test_units_of_an_init_container_given_without_asking_wait_for_no_newer_pod(
    kubelet: Kubelet,
) -> None:
    kubelet.ask("inits", Half.CORE, 60, shows=False)
    first = kubelet.allocations()[0].core
    kubelet.now += 0.005
    kubelet.service.admission.allocate(
        VGPU, Half.CORE, first[:40]
    )  # to the next one, as it had them
    kubelet.ask("pair", Half.MEMORY, 8)
    kubelet.ask("pair", Half.CORE, 30)

    assert kubelet.shapes() == [
        (60, 0),
        (40, 0),
        (30, 8),
    ]


def test_the_halves_of_an_init_container_meet_though_nobody_shows_it(
    kubelet: Kubelet,
) -> None:
    kubelet.ask("other", Half.CORE, 30)
    kubelet.ask("other", Half.MEMORY, 3)

    assert kubelet.ask("pod", Half.MEMORY, 8, shows=False) == kubelet.ask(
        "pod", Half.CORE, 60, shows=False
    )
    assert (60, 8) in kubelet.shapes()


@pytest.mark.parametrize("order", [("core", "memory"), ("memory", "core")], ids="-".join)
def test_without_podresources_the_order_of_the_calls_decides(
    kubelet: Kubelet, order: tuple[str, str]
) -> None:
    kubelet.answers = False
    amounts: dict[str, tuple[Half, int]] = {"core": (Half.CORE, 60), "memory": (Half.MEMORY, 8)}

    for pod in ("first", "second"):
        for half in order:
            kubelet.ask(pod, *amounts[half])

    assert kubelet.shapes() == [(60, 8), (60, 8)]


def test_a_listing_that_an_allocate_overtook_counts_for_nothing(kubelet: Kubelet) -> None:
    kubelet.ask("pod", Half.CORE, 30)
    kubelet.ask("pod", Half.MEMORY, 3)
    kubelet.service.reconcile()
    (before,) = kubelet.allocations()
    assert before.owner is not None
    units = [u.name for u in kubelet.service.units(VGPU, Half.CORE)[1] if u.name not in before.core]

    def list_while_another_is_admitted() -> list[Listed]:
        kubelet.service.admission.allocate(VGPU, Half.CORE, units[:5])
        return []  # what the kubelet forgot meanwhile

    kubelet.show = list_while_another_is_admitted  # type: ignore[method-assign]
    kubelet.service.reconcile()

    assert before in kubelet.allocations()
    assert all(not allocation.missing_since for allocation in kubelet.allocations())


def refuse(run: Callable[[], object]) -> str:
    with pytest.raises(AllocationRefused) as caught:
        run()
    return caught.value.message


def test_a_start_is_refused_where_two_containers_share_a_allocation(kubelet: Kubelet) -> None:
    kubelet.answers = False
    kubelet.ask("one", Half.CORE, 30)
    kubelet.ask("two", Half.MEMORY, 8)
    kubelet.answers = True
    (allocation,) = kubelet.allocations()

    said = refuse(lambda: kubelet.service.starts.pre_start(VGPU, Half.CORE, allocation.core))

    assert "went to different containers (team/one/c0 has only 30 of its 38 units)" in said


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_wall_clock_that_is_set_neither_splits_a_pair_nor_joins_strangers(
    kubelet: Kubelet, step_s: float
) -> None:
    kubelet.ask("pair", Half.CORE, 60)
    kubelet.wall += step_s
    kubelet.ask("pair", Half.MEMORY, 8)

    assert kubelet.shapes() == [(60, 8)]
    assert kubelet.allocations()[0].changed_at == kubelet.wall

    kubelet.answers = False  # so that time alone tells who is a stranger
    kubelet.ask("lone", Half.CORE, 30)
    kubelet.now += JOIN_WINDOW_S + 1
    kubelet.wall += step_s
    kubelet.ask("stranger", Half.MEMORY, 8)

    assert kubelet.shapes()[1:] == [(30, 0), (0, 8)]


def test_an_agent_measures_windows_by_a_clock_that_nobody_sets() -> None:
    before_s = time.monotonic()

    assert before_s <= Sources(list).clock() <= time.monotonic()
