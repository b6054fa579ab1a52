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
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None
        self.socket.unlink(missing_ok=True)


class Node:
    """A directory of sockets with a kubelet, three plugins, and a registrar with a clock."""

    def __init__(self, directory: Path) -> None:
        self.kubelet = FakeKubelet(directory)
        names = ("a/one", "a/two", "a/three")
        self.plugins: list[Any] = [SocketOnlyPlugin(name, directory) for name in names]
        self.wanted = self.plugins
        self.now_s = 0.0
        self.registrar = Registrar(directory, lambda: self.wanted, lambda: self.now_s)

    def look(self, seconds: float = 0.0) -> tuple[str, ...]:
        """Lets time pass, looks, and returns whom the kubelet does not listen to."""
        self.now_s += seconds
        assert self.registrar.look()
        return self.registrar.unheard


@pytest.fixture
def node(caplog: pytest.LogCaptureFixture) -> Iterator[Node]:
    caplog.set_level(logging.INFO, "deviceplugin")
    with tempfile.TemporaryDirectory(prefix="vgpu-", dir="/tmp") as name:
        node = Node(Path(name))
        node.kubelet.start()
        yield node
        node.kubelet.stop()


def test_each_is_registered_once_and_again_with_a_new_kubelet(node: Node) -> None:
    assert node.registrar.look()
    assert node.registrar.look()
    assert node.kubelet.asked == ["a/one", "a/two", "a/three"]

    node.kubelet.stop()
    for plugin in node.plugins:  # a kubelet that starts removes all sockets
        plugin.socket.unlink()
    assert not node.registrar.look()
    node.kubelet.start()

    assert node.registrar.look()
    assert node.kubelet.asked[3:] == ["a/one", "a/two", "a/three"]
    assert all(plugin.socket.exists() for plugin in node.plugins)


def test_a_kubelet_restarted_meanwhile_is_not_asked_again_by_those_that_it_took(
    node: Node,
) -> None:
    # As another one's would be.
    node.plugins[1].start = lambda: os.utime(node.kubelet.socket, ns=(1, 1))
    node.plugins[1].socket.touch()

    node.registrar.look()
    node.registrar.look()

    assert node.kubelet.asked == ["a/one", "a/two", "a/three", "a/one", "a/two"]


def test_those_that_are_not_wanted_any_more_end_and_new_ones_are_registered(node: Node) -> None:
    node.wanted = node.plugins[:2]
    assert node.registrar.look()

    node.wanted = node.plugins[1:]
    assert node.registrar.look()
    assert [plugin.socket.exists() for plugin in node.plugins] == [False, True, True]
    assert node.kubelet.asked == ["a/one", "a/two", "a/three"]
    assert set(node.registrar.registrations()) == {"a/two", "a/three"}

    node.wanted = node.plugins
    assert node.registrar.look()
    assert node.kubelet.asked[3:] == ["a/one"], "the others were not disturbed"
    assert all(node.registrar.registrations().values())


def test_one_that_is_refused_holds_up_no_other_and_is_said_once(
    node: Node,
    caplog: pytest.LogCaptureFixture,
) -> None:
    node.kubelet.refused = {"a/one", "a/two"}

    for _ in range(3):
        assert not node.registrar.look()

    assert node.kubelet.asked.count("a/three") == 1
    said = [vars(r)["fields"]["resource"] for r in caplog.records if "failed" in r.message]
    assert said == ["a/one", "a/two"]

    node.kubelet.refused = set()

    assert node.registrar.look()
    assert node.kubelet.asked.count("a/three") == 1


def test_a_kubelet_that_does_not_answer_is_asked_once_a_look(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.kubelet.stop()
    node.kubelet.socket.touch()
    done = threading.Event()

    def look() -> None:
        node.registrar.look()
        done.set()

    threading.Thread(target=look, daemon=True).start()

    assert done.wait(PATIENCE_S)
    assert [vars(r)["fields"]["resource"] for r in caplog.records if "failed" in r.message] == [
        "a/one"
    ]
    assert [plugin.starts for plugin in node.plugins] == [1, 1, 1]  # all are served all the same


@pytest.mark.parametrize("problem", [VgpuError("no socket"), PermissionError(13, "not allowed")])
def test_one_that_cannot_be_served_holds_up_nothing_else(
    node: Node,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
) -> None:
    node.plugins[0].problem = problem

    with caplog.at_level(logging.WARNING):
        assert not node.registrar.look()
        assert not node.registrar.look()

    assert node.kubelet.asked == ["a/two", "a/three"]
    assert node.registrar.registrations()["a/one"] is None
    assert caplog.text.count("a resource cannot be served") == 1
    node.plugins[0].problem = None
    assert node.registrar.look()
    assert node.kubelet.asked[-1] == "a/one"


def test_a_resource_whose_stream_ended_is_registered_again_and_is_not_heard_until_then(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    assert node.look() == node.look(60.0) == ()

    node.plugins[1].is_listened_to = False
    assert node.look() == ("a/two",)
    assert node.kubelet.asked[3:] == []
    assert node.look(1.0) == ("a/two",)
    assert node.kubelet.asked[3:] == ["a/two"]
    node.plugins[1].is_listened_to = True
    assert node.look(0.5) == ()

    assert node.look(600.0) == ()
    assert node.kubelet.asked[3:] == ["a/two"]
    assert [plugin.starts for plugin in node.plugins] == [1, 1, 1], "it goes on serving meanwhile"
    assert sum("does not listen" in record.getMessage() for record in caplog.records) == 1


def test_a_kubelet_that_ends_each_stream_at_once_is_asked_later_and_later(node: Node) -> None:
    node.wanted = node.plugins[:1]
    node.look()
    node.look(60.0)

    asked_at_s = []
    for _ in range(400):
        node.plugins[0].is_listened_to = False
        before = len(node.kubelet.asked)
        node.look(1.0)
        if len(node.kubelet.asked) > before:
            asked_at_s.append(node.now_s)
            node.plugins[0].is_listened_to = True
            node.look()

    waits = [later - earlier for earlier, later in pairwise(asked_at_s)]
    assert waits == sorted(waits)
    assert waits[0] < 4.0 and 60.0 <= waits[-1] < 63.0


def test_a_kubelet_that_never_lists_is_given_time_and_registered_with_again(
    node: Node,
) -> None:
    for plugin in node.plugins[:2]:
        plugin.is_listened_to = False

    assert node.look() == node.look(OPENS_WITHIN_S - 1) == ()
    assert node.look(1.0) == ("a/one", "a/two")
    assert node.kubelet.asked[3:] == ["a/one", "a/two"]
    for _ in range(120):
        assert node.look(1.0) == ("a/one", "a/two"), "another registration is no stream"
    assert 2 <= node.kubelet.asked[5:].count("a/one") <= 4

    node.plugins[0].is_listened_to = True
    assert node.look() == ("a/two",)


def test_a_stream_that_came_and_went_between_two_looks_has_ended(node: Node) -> None:
    node.plugins[0].is_listened_to = False
    node.wanted = node.plugins[:1]
    assert node.look() == ()

    node.plugins[0].streams_opened += 1

    assert node.look() == ("a/one",)
    node.look(1.0)
    assert node.kubelet.asked == ["a/one", "a/one"]


def test_a_kubelet_that_refuses_a_resource_whose_stream_it_ended_has_it_no_more(node: Node) -> None:
    node.look()
    node.plugins[0].is_listened_to, node.kubelet.refused = False, {"a/one"}

    node.now_s += 60.0
    node.registrar.look()
    assert not node.registrar.look()
    assert node.registrar.registrations()["a/one"] is None

    node.kubelet.refused = set()
    assert node.look() == ()
    assert node.registrar.registrations()["a/one"] is not None


def test_a_new_kubelet_is_given_time_again(node: Node) -> None:
    node.wanted = node.plugins[:1]
    node.look()
    node.plugins[0].is_listened_to = False
    assert node.look(60.0) == ("a/one",)

    node.kubelet.stop()
    assert not node.registrar.look()
    node.kubelet.start()

    assert node.look() == ()
    assert node.look(OPENS_WITHIN_S) == ("a/one",)
