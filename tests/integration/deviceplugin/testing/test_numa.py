"""Which units the kubelet stand-in takes by itself, and which it asks its plugin about."""

from collections.abc import Iterator

import pytest

from deviceplugin.testing import ContainerManifest, PodManifest, StandInKubelet
from support.node.fake_plugin import FakePlugin
from support.waiting import PATIENCE_S

A = "example.com/a"
NODE_OF = [0, 0, 0, 1, 1, 1, 1, None]  # of a0 to a7; the last has no topology


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInKubelet]:
    """One whose containers have an affinity to the NUMA node that their pod is named after."""
    with StandInKubelet(
        tmp_path_factory.mktemp("k"),
        seed=3,
        affinity=lambda pod, container: {int(pod.manifest.name[-1])},
    ) as made:
        yield made


@pytest.fixture
def plugin(kubelet: StandInKubelet) -> Iterator[FakePlugin]:
    nodes = [[] if node is None else [node] for node in NODE_OF]
    made = FakePlugin(kubelet, A, len(nodes), [], numa=lambda unit: nodes[unit])
    made.register()
    kubelet.wait_for_resources([A], PATIENCE_S)
    yield made
    made.stop()


def names(*numbers: int) -> set[str]:
    return {f"a{n}" for n in numbers}


def admit(kubelet: StandInKubelet, name: str, count: int, init: int = 0) -> set[str]:
    pod = kubelet.admit(
        PodManifest(
            name=name,
            containers=(ContainerManifest("c", limits={A: count}),),
            init_containers=(ContainerManifest("i", limits={A: init}),) if init else (),
        )
    )
    return set(pod.container("c").devices[A])


def test_the_plugin_chooses_among_aligned_units_where_there_are_more(
    kubelet: StandInKubelet, plugin: FakePlugin
) -> None:
    plugin.prefer = ["a6", "a0", "a4"]

    got = admit(kubelet, "pod-on-1", 3)

    assert plugin.asked == [(names(3, 4, 5, 6), set())]
    assert names(4, 6) <= got <= names(3, 4, 5, 6), "not aligned ones were taken, or none it named"


def test_all_aligned_units_are_taken_without_asking_where_all_are_needed(
    kubelet: StandInKubelet, plugin: FakePlugin
) -> None:
    assert admit(kubelet, "pod-on-0", 3) == names(0, 1, 2)
    assert plugin.asked == []


def test_of_what_is_missing_beyond_the_aligned_the_plugin_is_asked(
    kubelet: StandInKubelet, plugin: FakePlugin
) -> None:
    plugin.prefer = ["a0", "a1", "a2", "a7", "a3"]

    got = admit(kubelet, "pod-on-0", 5)

    assert plugin.asked == [(names(*range(8)), names(0, 1, 2))]
    assert plugin.calls[0] == ("prefer", "a", 5)
    assert got == names(0, 1, 2, 3, 7)


def test_units_without_topology_come_last(kubelet: StandInKubelet, plugin: FakePlugin) -> None:
    plugin.prefer = []

    assert admit(kubelet, "pod-on-0", 7) == names(*range(7))


def test_units_of_init_containers_come_first_and_must_be_in_the_answer(
    kubelet: StandInKubelet, plugin: FakePlugin
) -> None:
    plugin.prefer = ["a5"]

    got = admit(kubelet, "pod-on-1", 3, init=1)

    assert plugin.asked[0] == (names(3, 4, 5, 6), set())
    (available, must) = plugin.asked[1]
    assert must == names(5)
    assert available == names(3, 4, 5, 6)
    assert must < got <= available


def test_without_an_affinity_all_free_units_are_offered(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with StandInKubelet(tmp_path_factory.mktemp("k"), seed=1) as kubelet:
        plugin = FakePlugin(kubelet, A, 4, [])
        plugin.register()
        kubelet.wait_for_resources([A], PATIENCE_S)

        admit(kubelet, "p", 4)

        assert plugin.asked == [(names(0, 1, 2, 3), set())]
        plugin.stop()
