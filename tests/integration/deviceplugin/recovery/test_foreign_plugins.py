"""The watch for other device plugins, on a kubelet's directory with sockets and a checkpoint."""

import contextlib
import json
import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deviceplugin import agent
from deviceplugin.model.notices import EventReason
from deviceplugin.recovery.foreign_plugins import ForeignPluginWatch, device_plugins
from deviceplugin.recovery.kubelet_checkpoint import NAME
from support.node.in_process import running_node
from support.waiting import wait_until
from vgpuctl.doctor import plugin_checks
from vgpuctl.doctor.finding import FAIL, OK, WARN

GPU = "GPU-11111111-aaaa"


class Node:
    """A kubelet's directory and the agent's watch of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ours = ["nvidia.com/vgpu-core"]
        self.watch = ForeignPluginWatch(directory, lambda: self.ours, lambda: [GPU])

    def register(self, **resources: list[str]) -> None:
        """The kubelet writes its checkpoint."""
        devices = {name.replace("__", "/"): ids for name, ids in resources.items()}
        text = json.dumps({"Data": {"PodDeviceEntries": None, "RegisteredDevices": devices}})
        (self.directory / NAME).write_text(text)

    @contextlib.contextmanager
    def plugin(self, name: str) -> Iterator[None]:
        """A plugin that serves on a socket; the file stays, as after a crash."""
        with socket.socket(socket.AF_UNIX) as server:
            # By a relative path, since the whole one may be too long.
            os.chdir(self.directory)
            server.bind(name)
            server.listen()
            yield


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.chdir(tmp_path)
    return Node(tmp_path)


def told(records: list[logging.LogRecord]) -> list[Any]:
    return [(r.levelno, getattr(r, "notice", None), r.getMessage()) for r in records]


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[logging.LogRecord]]:
    kept: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", kept.append)
    logger = logging.getLogger("deviceplugin")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_it_is_told_once_when_it_stays_and_once_when_it_has_gone(
    node: Node, records: list[logging.LogRecord]
) -> None:
    node.register(**{"nvidia.com__gpu": []})
    node.watch.look()
    node.watch.look()
    assert records == []

    node.register(**{"nvidia.com__gpu": [GPU]})
    node.watch.look()
    assert records == []  # may be gone already
    for _ in range(3):
        node.watch.look()
    ((level, notice, text),) = told(records)
    assert level == logging.WARNING
    assert notice.reason is EventReason.FOREIGN_DEVICE_PLUGIN
    assert notice.reason.is_warning
    assert f"resource nvidia.com/gpu has {GPU}" in text
    assert "nvidia.com/gpu.deploy.device-plugin=false" in notice.text

    node.register(**{"nvidia.com__gpu": []})
    for _ in range(3):
        node.watch.look()
    assert [level for level, _, _ in told(records)] == [logging.WARNING, logging.INFO]


def test_a_short_appearance_is_not_told(node: Node, records: list[logging.LogRecord]) -> None:
    for devices in ([], [GPU], [], [GPU], []):
        node.register(**{"nvidia.com__gpu": devices})
        node.watch.look()

    assert records == []


def test_what_was_ours_a_moment_ago_is_not_told(
    node: Node, records: list[logging.LogRecord]
) -> None:
    node.register(**{"nvidia.com__gpu": [GPU]})
    node.ours = ["nvidia.com/gpu"]
    node.watch.look()
    node.ours = ["nvidia.com/vgpu-core"]
    for _ in range(3):
        node.watch.look()

    assert records == []


def test_only_sockets_that_answer_count(node: Node) -> None:
    with node.plugin("nvidia-gpu.sock"), node.plugin("kubelet.sock"):
        assert device_plugins(node.directory).sockets == ("nvidia-gpu.sock",)
    (node.directory / "nvidia-x.sock").touch()

    assert (node.directory / "nvidia-gpu.sock").exists()
    assert device_plugins(node.directory).sockets == ()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"Data": {"RegisteredDevices": 3}}'])
def test_what_cannot_be_read_changes_nothing(
    node: Node, records: list[logging.LogRecord], content: str
) -> None:
    node.register(**{"nvidia.com__gpu": [GPU]})
    node.watch.look()
    node.watch.look()
    (node.directory / NAME).write_text(content)
    node.watch.look()
    node.watch.look()

    assert len(records) == 1
    with pytest.raises(ValueError, match="not a kubelet checkpoint"):
        device_plugins(node.directory)


def test_doctor_says_it_with_a_fix(node: Node) -> None:
    bad = plugin_checks.other_plugins(node.watch._seen)
    assert bad.level == OK
    node.register(**{"nvidia.com__gpu": [GPU]})
    node.watch.look()
    bad = plugin_checks.other_plugins(node.watch._seen)
    assert bad.level == FAIL
    assert GPU in bad.message
    assert "nvidia.com/gpu.deploy.device-plugin=false" in bad.fix

    denied = plugin_checks.unseen(node.directory, PermissionError(13, "Permission denied"))
    assert denied.level == WARN
    assert "sudo" in denied.fix
    assert plugin_checks.unseen(node.directory, ValueError("odd")).level == WARN


def test_a_running_agent_tells_of_nvidias_plugin_and_not_of_its_own(
    monkeypatch: pytest.MonkeyPatch, records: list[logging.LogRecord]
) -> None:
    monkeypatch.setattr(agent, "_FOREIGN_EVERY_S", 0.1)

    def events() -> list[str]:
        notices = [notice for _, notice, _ in told(records) if notice is not None]
        return [n.text for n in notices if n.reason is EventReason.FOREIGN_DEVICE_PLUGIN]

    with (
        running_node(monkeypatch, in_world=True) as running,
        socket.socket(socket.AF_UNIX) as plugin,
    ):
        plugin.bind(str(running.kubelet_dir / "device-plugins" / "nvidia-gpu.sock"))
        plugin.listen()
        wait_until(lambda: bool(events()), "the agent tells of the other plugin")

    assert len(events()) == 1
    assert "NVIDIA's device plugin answers on nvidia-gpu.sock" in events()[0]
