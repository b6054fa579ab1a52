"""Plugins stay registered with whatever kubelet is there; what it refuses holds up nothing else."""

import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent import futures
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest

from deviceplugin.kubelet.listening import OPENS_WITHIN_S
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.registrar import Registrar
from libvgpu.errors import VgpuError
from support.waiting import PATIENCE_S


class SocketOnlyPlugin:
    """A plugin whose socket is an empty file, and whose stream the test says there is."""

    def __init__(self, resource: str, directory: Path) -> None:
        self.resource = resource
        self.socket = directory / resource.replace("/", "-")
        self.starts = 0
        self.problem: Exception | None = None
        self.is_listened_to, self.streams_opened = True, 0

    def start(self) -> None:
        if self.problem is not None:
            raise self.problem
        self.starts += 1
        self.socket.touch()

    def stop(self) -> None:
        self.socket.unlink(missing_ok=True)


class FakeKubelet:
    """Takes registrations, apart from those of ``refused``."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "kubelet.sock"
        self.refused: set[str] = set()
        self.asked: list[str] = []
        self._server: Any = None

    def start(self) -> None:
        def register(request: bytes, context: Any) -> bytes:
            name = pb.RegisterRequest.FromString(request).resource_name
            self.asked.append(name)
            if name in self.refused:
                context.abort(grpc.StatusCode.UNKNOWN, "not that one")
            return b""

        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        handlers = {"Register": grpc.unary_unary_rpc_method_handler(register)}
        generic = grpc.method_handlers_generic_handler("v1beta1.Registration", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(f"unix:{self.socket}")
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        yield Path(name)


@pytest.fixture
def kubelet(directory: Path) -> Iterator[FakeKubelet]:
    kubelet = FakeKubelet(directory)
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.fixture
def plugins(directory: Path) -> list[Any]:
    return [SocketOnlyPlugin(name, directory) for name in ("a/one", "a/two", "a/three")]


def test_each_is_registered_once_and_again_with_a_new_kubelet(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    registrar = Registrar(directory, lambda: plugins)

    assert registrar.look()
    assert registrar.look()
    assert kubelet.asked == ["a/one", "a/two", "a/three"]

    kubelet.stop()
    for plugin in plugins:  # a kubelet that starts removes all sockets
        plugin.socket.unlink()
    assert not registrar.look()
    kubelet.start()

    assert registrar.look()
    assert kubelet.asked[3:] == ["a/one", "a/two", "a/three"]
    assert all(plugin.socket.exists() for plugin in plugins)


def test_a_kubelet_that_is_restarted_meanwhile_is_not_asked_again_by_those_that_it_took(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    plugins[1].start = lambda: os.utime(kubelet.socket, ns=(1, 1))  # as another one's would be
    plugins[1].socket.touch()
    registrar = Registrar(directory, lambda: plugins)

    registrar.look()
    registrar.look()

    assert kubelet.asked == ["a/one", "a/two", "a/three", "a/one", "a/two"]


def test_those_that_are_not_wanted_any_more_end_and_new_ones_are_registered(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    wanted = plugins[:2]
    registrar = Registrar(directory, lambda: wanted)
    assert registrar.look()

    wanted = plugins[1:]
    assert registrar.look()
    assert [plugin.socket.exists() for plugin in plugins] == [False, True, True]
    assert kubelet.asked == ["a/one", "a/two", "a/three"]
    assert set(registrar.registrations()) == {"a/two", "a/three"}

    wanted = plugins
    assert registrar.look()
    assert kubelet.asked[3:] == ["a/one"], "the others were not disturbed"
    assert all(registrar.registrations().values())


def test_one_that_is_refused_holds_up_no_other_and_is_said_once(
    directory: Path,
    kubelet: FakeKubelet,
    plugins: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    kubelet.refused = {"a/one", "a/two"}
    registrar = Registrar(directory, lambda: plugins)

    for _ in range(3):
        assert not registrar.look()

    assert kubelet.asked.count("a/three") == 1
    said = [vars(r)["fields"]["resource"] for r in caplog.records if "failed" in r.message]
    assert said == ["a/one", "a/two"]

    kubelet.refused = set()

    assert registrar.look()
    assert kubelet.asked.count("a/three") == 1


def test_a_kubelet_that_does_not_answer_is_asked_once_a_look(
    directory: Path, plugins: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    (directory / "kubelet.sock").touch()
    registrar = Registrar(directory, lambda: plugins)
    done = threading.Event()

    def look() -> None:
        registrar.look()
        done.set()

    threading.Thread(target=look, daemon=True).start()

    assert done.wait(PATIENCE_S)
    assert [vars(r)["fields"]["resource"] for r in caplog.records if "failed" in r.message] == [
        "a/one"
    ]
    assert [plugin.starts for plugin in plugins] == [1, 1, 1]  # all are served all the same


@pytest.mark.parametrize("problem", [VgpuError("no socket"), PermissionError(13, "not allowed")])
def test_one_that_cannot_be_served_holds_up_nothing_else(
    directory: Path,
    kubelet: FakeKubelet,
    plugins: list[Any],
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
) -> None:
    plugins[0].problem = problem
    registrar = Registrar(directory, lambda: plugins)

    with caplog.at_level(logging.WARNING):
        assert not registrar.look()
        assert not registrar.look()

    assert kubelet.asked == ["a/two", "a/three"]
    assert registrar.registrations()["a/one"] is None
    assert caplog.text.count("a resource cannot be served") == 1
    plugins[0].problem = None
    assert registrar.look()
    assert kubelet.asked[-1] == "a/one"


class Moments:
    """The registrar's clock, and its looks."""

    def __init__(self, directory: Path, plugins: list[Any]) -> None:
        self.now_s = 0.0
        self.registrar = Registrar(directory, lambda: plugins, lambda: self.now_s)

    def look(self, seconds: float = 0.0) -> tuple[str, ...]:
        """Lets time pass, looks, and returns whom the kubelet does not listen to."""
        self.now_s += seconds
        assert self.registrar.look()
        return self.registrar.unheard


def test_a_resource_whose_stream_ended_is_registered_again_and_is_not_heard_until_then(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    moments = Moments(directory, plugins)
    assert moments.look() == moments.look(60.0) == ()

    plugins[1].is_listened_to = False
    assert moments.look() == ("a/two",)
    assert kubelet.asked[3:] == []
    assert moments.look(1.0) == ("a/two",)
    assert kubelet.asked[3:] == ["a/two"]
    plugins[1].is_listened_to = True
    assert moments.look(0.5) == ()

    assert moments.look(600.0) == ()
    assert kubelet.asked[3:] == ["a/two"]
    assert [plugin.starts for plugin in plugins] == [1, 1, 1], "it goes on serving meanwhile"
    assert sum("does not listen" in record.getMessage() for record in caplog.records) == 1


def test_a_kubelet_that_ends_each_stream_at_once_is_asked_later_and_later(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    moments = Moments(directory, plugins[:1])
    moments.look()
    moments.look(60.0)

    asked_at_s = []
    for _ in range(400):
        plugins[0].is_listened_to = False
        before = len(kubelet.asked)
        moments.look(1.0)
        if len(kubelet.asked) > before:
            asked_at_s.append(moments.now_s)
            plugins[0].is_listened_to = True
            moments.look()

    waits = [later - earlier for earlier, later in pairwise(asked_at_s)]
    assert waits == sorted(waits)
    assert waits[0] < 4.0 and 60.0 <= waits[-1] < 63.0


def test_a_kubelet_that_never_lists_is_registered_with_again_and_is_given_time_at_the_start(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    for plugin in plugins[:2]:
        plugin.is_listened_to = False
    moments = Moments(directory, plugins)

    assert moments.look() == moments.look(OPENS_WITHIN_S - 1) == ()
    assert moments.look(1.0) == ("a/one", "a/two")
    assert kubelet.asked[3:] == ["a/one", "a/two"]
    for _ in range(120):
        assert moments.look(1.0) == ("a/one", "a/two"), "another registration is no stream"
    assert 2 <= kubelet.asked[5:].count("a/one") <= 4

    plugins[0].is_listened_to = True
    assert moments.look() == ("a/two",)


def test_a_stream_that_came_and_went_between_two_looks_has_ended(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    plugins[0].is_listened_to = False
    moments = Moments(directory, plugins[:1])
    assert moments.look() == ()

    plugins[0].streams_opened += 1

    assert moments.look() == ("a/one",)
    moments.look(1.0)
    assert kubelet.asked == ["a/one", "a/one"]


def test_a_kubelet_that_refuses_a_resource_whose_stream_it_ended_has_it_no_more(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    moments = Moments(directory, plugins)
    moments.look()
    plugins[0].is_listened_to, kubelet.refused = False, {"a/one"}

    moments.now_s += 60.0
    moments.registrar.look()
    assert not moments.registrar.look()
    assert moments.registrar.registrations()["a/one"] is None

    kubelet.refused = set()
    assert moments.look() == ()
    assert moments.registrar.registrations()["a/one"] is not None


def test_a_new_kubelet_is_given_time_again(
    directory: Path, kubelet: FakeKubelet, plugins: list[Any]
) -> None:
    moments = Moments(directory, plugins[:1])
    moments.look()
    plugins[0].is_listened_to = False
    assert moments.look(60.0) == ("a/one",)

    kubelet.stop()
    assert not moments.registrar.look()
    kubelet.start()

    assert moments.look() == ()
    assert moments.look(OPENS_WITHIN_S) == ("a/one",)
