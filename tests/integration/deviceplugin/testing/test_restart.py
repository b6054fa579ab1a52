"""The kubelet stand-in remembers, restarts and forgets as a kubelet does."""

import json
from collections.abc import Callable, Iterator

import pytest

from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.recovery.kubelet_checkpoint import KubeletCheckpoint
from deviceplugin.testing import (
    AdmissionFailed,
    ContainerManifest,
    PodManifest,
    StandInKubelet,
)
from support.node.fake_plugin import FakePlugin, listed
from support.waiting import PATIENCE_S, wait_until

A, B = "example.com/a", "example.com/b"

Serve = Callable[..., FakePlugin]


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInKubelet]:
    with StandInKubelet(tmp_path_factory.mktemp("k"), seed=1) as made:
        yield made


@pytest.fixture
def serve(kubelet: StandInKubelet) -> Iterator[Serve]:
    """Returns ``serve(resource, units, …)``: a registered plugin; the one before it ends."""
    made: dict[str, FakePlugin] = {}

    def start(resource: str, units: int = 4, **more: object) -> FakePlugin:
        if resource in made:
            made[resource].stop()
        made[resource] = FakePlugin(kubelet, resource, units, [], **more)  # type: ignore[arg-type]
        before = written(kubelet)
        made[resource].register()
        kubelet.wait_for_resources([resource], PATIENCE_S)
        # With each list it writes its checkpoint, a moment after it has the units.
        wait_until(lambda: written(kubelet) != before)
        return made[resource]

    yield start
    for plugin in made.values():
        plugin.stop()


def pod(
    name: str, *containers: dict[str, int], init: tuple[ContainerManifest, ...] = ()
) -> PodManifest:
    return PodManifest(
        name=name,
        containers=tuple(
            ContainerManifest(f"c{n}", limits=limits) for n, limits in enumerate(containers)
        ),
        init_containers=init,
    )


def written(kubelet: StandInKubelet) -> tuple[int, int] | None:
    """Returns what tells one writing of the checkpoint from the next; None before the first."""
    try:
        status = kubelet.checkpoint.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def entries(kubelet: StandInKubelet) -> dict[tuple[str, str, str], set[str]]:
    """What the checkpoint says, as our agent reads it."""
    found = KubeletCheckpoint(kubelet.plugin_directory.parent, "example.com", mounts_of).read()
    assert found.problem is None
    return {(e.pod_uid, e.container, e.resource): set(e.units) for e in found.entries}


def test_the_checkpoint_has_what_containers_were_given_in_the_kubelets_form(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    serve(A, numa=lambda unit: [unit % 2])
    serve(B, numa=lambda unit: [0, 1] if unit else [])

    admitted = kubelet.admit(pod("p", {A: 2, B: 4}))

    document = json.loads(kubelet.checkpoint.read_text())
    assert set(document) == {"Data", "Checksum"}
    by_resource = {e["ResourceName"]: e for e in document["Data"]["PodDeviceEntries"]}
    assert by_resource[B]["DeviceIDs"].keys() == {"-1", "0", "1"}
    assert by_resource[B]["DeviceIDs"]["-1"] == ["b0"]
    assert set(by_resource[A]["DeviceIDs"]) <= {"0", "1"}
    assert set(document["Data"]["RegisteredDevices"][A]) == {"a0", "a1", "a2", "a3"}
    held = {name: set(units) for name, units in admitted.container("c0").devices.items()}
    assert entries(kubelet) == {(admitted.uid, "c0", name): held[name] for name in (A, B)}


def test_it_is_written_when_a_container_is_complete_and_not_before(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    plugins = {name: serve(name) for name in (A, B)}
    seen = []
    for plugin in plugins.values():
        plugin.on_allocate = lambda: seen.append(sorted(c for _, c, _ in entries(kubelet)))

    kubelet.admit(pod("p", {A: 1, B: 1}, {A: 1}))

    assert seen == [[], [], ["c0", "c0"]]
    plugins[B].refuse = "no"
    with pytest.raises(AdmissionFailed):
        kubelet.admit(pod("failed", {A: 1, B: 1}))
    assert len(entries(kubelet)) == 3


def test_pods_that_ended_stay_until_the_next_list_of_a_plugin(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    plugin = serve(A)
    admitted = kubelet.admit(pod("p", {A: 3}))
    key = (admitted.uid, "c0", A)

    kubelet.finish(admitted)
    plugin.set_health("a0", "Unhealthy")
    wait_until(lambda: kubelet.allocatable()[A] == 3)
    assert key in entries(kubelet), "nothing has asked yet"

    assert listed(kubelet) == {}
    plugin.set_health("a0", "Healthy")
    wait_until(lambda: key not in entries(kubelet))


def test_a_restarted_kubelet_keeps_its_pods_and_wants_registrations(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    plugin = serve(A)
    admitted = kubelet.admit(pod("p", {A: 3}))
    before = dict(admitted.container("c0").devices)
    kubelet.run_options(admitted, "c0")

    kubelet.stop()
    assert not kubelet.plugin_socket.exists()
    kubelet.start()

    assert not plugin.socket.exists(), "a plugin's socket was left"
    assert kubelet.allocatable() == {}
    assert admitted.container("c0").devices == before
    assert listed(kubelet) == {"p": {A: set(before[A])}}
    kubelet.readmit(admitted)
    assert admitted.active, "its container runs"
    with pytest.raises(AdmissionFailed, match="no healthy devices present"):
        kubelet.admit(pod("q", {A: 1}))
    serve(A)
    with pytest.raises(AdmissionFailed, match="requested 2, available 1"):
        kubelet.admit(pod("q", {A: 2}))
    assert not set(kubelet.admit(pod("r", {A: 1})).container("c0").devices[A]) & set(before[A])


def test_after_a_reboot_pods_fail_until_their_plugin_is_there(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    serve(A)
    early, late = (kubelet.admit(pod(name, {A: 1})) for name in ("early", "late"))
    for each in (early, late):
        kubelet.run_options(each, "c0")
    kubelet.stop()
    kubelet.lose_containers()
    kubelet.start()

    with pytest.raises(AdmissionFailed, match="no healthy devices present"):
        kubelet.readmit(early)

    assert not early.active
    plugin = serve(A)
    kubelet.readmit(late)
    assert late.active
    assert plugin.given == [], "units of a cached answer are not given again"
    plugin.set_health(late.container("c0").devices[A][0], "Unhealthy")
    wait_until(lambda: kubelet.allocatable()[A] == 3)
    with pytest.raises(AdmissionFailed, match="no longer healthy"):
        kubelet.readmit(late)


def test_before_it_registers_a_plugin_is_not_asked_about_a_start(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    plugin = serve(A)
    admitted = kubelet.admit(pod("p", {A: 1}))
    plugin.calls.clear()
    kubelet.stop()
    kubelet.start()

    options = kubelet.run_options(admitted, "c0")

    assert set(options.envs) == {"IDS_a"}, "the cached answer"
    again = serve(A)
    kubelet.run_options(admitted, "c0")
    assert plugin.calls == []
    assert again.calls == [("prestart", "a", 1)]


@pytest.mark.parametrize("content", [None, "", "{", '{"Data": {}, "Checksum": 0}', "changed"])
def test_a_lost_or_damaged_checkpoint_names_nothing(
    kubelet: StandInKubelet, serve: Serve, content: str | None
) -> None:
    serve(A)
    admitted = kubelet.admit(pod("p", {A: 1}))
    good = kubelet.checkpoint.read_text()
    kubelet.stop()
    kubelet.checkpoint.unlink()
    if content is not None:
        changed = good.replace('"c0"', '"c1"')
        kubelet.checkpoint.write_text(changed if content == "changed" else content)
    kubelet.start()

    assert admitted.container("c0").devices == {}
    serve(A)
    with pytest.raises(AdmissionFailed, match="no devices found allocated in local cache"):
        kubelet.run_options(admitted, "c0")


def test_another_kubelet_over_the_directory_knows_no_pod_and_frees_their_units(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    serve(A)
    kubelet.admit(pod("p", {A: 4}))
    kubelet.stop()

    with StandInKubelet(kubelet.plugin_directory.parent) as other:
        plugin = FakePlugin(other, A, 4, [])
        plugin.register()
        other.wait_for_resources([A], PATIENCE_S)
        assert len(other.admit(pod("q", {A: 4})).container("c0").devices[A]) == 4
        plugin.stop()


def test_a_plugin_that_went_away_is_not_called_though_its_socket_answers(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    plugin = serve(A)
    admitted = kubelet.admit(pod("p", {A: 1}))
    plugin.stop()
    wait_until(lambda: not kubelet.allocatable()[A])
    again = FakePlugin(kubelet, A, 4, [])
    try:
        with pytest.raises(AdmissionFailed, match="has been stopped"):
            kubelet.run_options(admitted, "c0")
        again.register()
        kubelet.wait_for_resources([A], PATIENCE_S)
        kubelet.run_options(admitted, "c0")
    finally:
        again.stop()


def test_units_of_a_sidecar_stay_its_own_and_are_listed(
    kubelet: StandInKubelet, serve: Serve
) -> None:
    serve(A, 8)
    plain = ContainerManifest("plain", limits={A: 2})
    sidecar = ContainerManifest("sidecar", limits={A: 2}, sidecar=True)
    last = ContainerManifest("last", limits={A: 3})

    admitted = kubelet.admit(pod("p", {A: 5}, init=(plain, sidecar, last)))

    units = {c.manifest.name: set(c.devices[A]) for c in admitted.containers}
    assert units["sidecar"] == units["plain"], "what a plain init container had is reused"
    assert units["last"].isdisjoint(units["sidecar"])
    assert units["c0"].isdisjoint(units["sidecar"])
    assert units["last"] < units["c0"]
    with_units = listed(kubelet)["p"][A]
    assert with_units in (units["sidecar"], units["c0"]), "listed by resource, the last wins"
    assert with_units != units["last"]


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_list_during_an_allocate_makes_a_forgetful_kubelet_offer_held_units(
    tmp_path_factory: pytest.TempPathFactory, forgetful: bool
) -> None:
    directory = tmp_path_factory.mktemp("k")
    with StandInKubelet(directory, seed=1, forgets_in_flight=forgetful) as kubelet:
        plugin = FakePlugin(kubelet, A, 4, [])
        plugin.register()
        kubelet.wait_for_resources([A], PATIENCE_S)
        ended = kubelet.admit(pod("ended", {A: 1}))

        def meanwhile() -> None:
            kubelet.finish(ended)
            listed(kubelet)

        plugin.on_allocate = meanwhile
        held = set(kubelet.admit(pod("p", {A: 2})).container("c0").devices[A])
        plugin.on_allocate = lambda: None
        kubelet.admit(pod("q", {A: 1}))

        offered, _ = plugin.asked[-1]
        assert (offered & held == held) is forgetful
        assert len(offered) == (4 if forgetful else 2)
        plugin.stop()
