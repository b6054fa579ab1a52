"""The kubelet stand-in calls device plugins as a kubelet does; the plugin here is a tiny fake."""

from collections.abc import Iterator

import grpc
import pytest

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.testing import AdmissionFailed, ContainerManifest, PodManifest, StandInKubelet
from deviceplugin.testing.merge import merge_answers
from libvgpu.errors import VgpuError
from support.node.fake_plugin import Call, FakePlugin, listed
from support.waiting import PATIENCE_S

A, B = "example.com/a", "example.com/b"


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInKubelet]:
    with StandInKubelet(tmp_path_factory.mktemp("k"), seed=1) as made:
        yield made


@pytest.fixture
def calls() -> list[Call]:
    return []


@pytest.fixture
def plugins(kubelet: StandInKubelet, calls: list[Call]) -> Iterator[dict[str, FakePlugin]]:
    made = {name: FakePlugin(kubelet, name, 4, calls) for name in (A, B)}
    for plugin in made.values():
        plugin.register()
    kubelet.wait_for_resources((A, B), PATIENCE_S)
    yield made
    for plugin in made.values():
        plugin.stop()


def pod(name: str = "p", init: dict[str, int] | None = None, **limits: int) -> PodManifest:
    names = {"a": A, "b": B, "c": "example.com/c"}
    return PodManifest(
        name=name,
        containers=(ContainerManifest("main", limits={names[k]: v for k, v in limits.items()}),),
        init_containers=(ContainerManifest("init", limits=init),) if init else (),
    )


def test_one_resource_is_done_before_the_next_and_in_both_orders(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin], calls: list[Call]
) -> None:
    orders = set()
    for i in range(12):
        calls.clear()

        admitted = kubelet.admit(pod(f"p{i}", a=1, b=2))

        kinds = [(kind, prefix) for kind, prefix, _ in calls]
        first, second = kinds[0][1], kinds[2][1]
        assert kinds == [
            ("prefer", first),
            ("allocate", first),
            ("prefer", second),
            ("allocate", second),
        ]
        orders.add(first)
        kubelet.finish(admitted)
    assert orders == {"a", "b"}


def test_the_preferred_units_are_taken_and_a_short_answer_is_completed(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin]
) -> None:
    plugins[A].prefer = ["a3"]

    admitted = kubelet.admit(pod(a=2))

    ids = admitted.container("main").devices[A]
    assert ids[0] == "a3"
    assert len(set(ids)) == 2


def test_units_without_topology_come_last(kubelet: StandInKubelet) -> None:
    plugin = FakePlugin(kubelet, A, 4, [], numa=lambda unit: [0] if unit else [])
    plugin.prefer = []
    plugin.register()
    kubelet.wait_for_resources([A], PATIENCE_S)

    got = kubelet.admit(pod(a=3)).container("main").devices[A]

    assert set(got) == {"a1", "a2", "a3"}
    assert plugin.asked == [({"a0", "a1", "a2", "a3"}, set())], "it is asked about all free units"
    plugin.stop()


def test_units_of_init_containers_come_first_and_must_be_in_the_answer(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin]
) -> None:
    plugins[A].prefer = ["a2"]

    got = set(kubelet.admit(pod(init={A: 1}, a=3)).container("main").devices[A])

    assert plugins[A].asked[1] == ({"a0", "a1", "a2", "a3"}, {"a2"})
    assert {"a2"} < got


def test_an_unregistered_resource_is_refused(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin]
) -> None:
    with pytest.raises(
        AdmissionFailed, match=r"cannot allocate unregistered device example\.com/c"
    ):
        kubelet.admit(pod(c=1))


def test_containers_reuse_the_units_of_init_containers(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin]
) -> None:
    admitted = kubelet.admit(pod(init={A: 3}, a=2))

    init, main = (set(admitted.container(name).devices[A]) for name in ("init", "main"))
    assert main < init


def test_podresources_shows_the_first_half_during_the_second_allocate(
    kubelet: StandInKubelet, plugins: dict[str, FakePlugin]
) -> None:
    seen: list[dict[str, set[str]]] = []
    for plugin in plugins.values():
        plugin.on_allocate = lambda: seen.append(listed(kubelet)["p"])

    admitted = kubelet.admit(pod(a=1, b=1))

    devices = {k: set(v) for k, v in admitted.container("main").devices.items()}
    assert seen[0] == {}
    assert len(seen[1]) == 1
    assert listed(kubelet) == {"p": devices}


def test_answers_that_disagree_are_reported_and_the_first_wins() -> None:
    answers = [
        (A, pb.ContainerAllocateResponse(envs={"K": "1", "SAME": "x"})),
        (B, pb.ContainerAllocateResponse(envs={"K": "2", "SAME": "x"})),
    ]

    merged = merge_answers(answers)

    assert merged.envs == {"K": "1", "SAME": "x"}
    assert merged.conflicts == ("env K is '1' by example.com/a but '2' by example.com/b",)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"version": "v1alpha"}, "version 'v1alpha' is not supported"),
        ({"resource_name": "nodomain"}, "not the name of an extended resource"),
        ({"endpoint": "../x.sock"}, "is not a file name"),
    ],
)
def test_a_wrong_registration_is_refused_in_words(
    kubelet: StandInKubelet, calls: list[Call], wrong: dict[str, str], sentence: str
) -> None:
    plugin = FakePlugin(kubelet, A, 1, calls)
    try:
        with pytest.raises(grpc.RpcError) as refused:
            plugin.register(**wrong)
        assert sentence in refused.value.details()
        assert kubelet.allocatable() == {}
    finally:
        plugin.stop()


def test_waiting_for_a_plugin_that_never_comes_names_it(kubelet: StandInKubelet) -> None:
    with pytest.raises(VgpuError, match=r"no plugin offers example\.com/a; registered are: none"):
        kubelet.wait_for_resources([A], 0.2)
