"""The running agent and doctor next to another device plugin of the same GPUs."""

import logging
import socket
from collections.abc import Iterator

import pytest

from deviceplugin import agent
from deviceplugin.model.notices import EventReason
from support.node.in_process import GivenGpus, InProcessNode, running_node
from support.waiting import wait_until
from vgpuctl.doctor import examine
from vgpuctl.doctor.finding import FAIL, OK


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    monkeypatch.setattr(agent, "_FOREIGN_EVERY_S", 0.1)
    monkeypatch.setattr(examine, "NvmlInventory", GivenGpus)
    with running_node(monkeypatch, in_world=True) as node:
        yield node


def said_by_doctor(node: InProcessNode) -> tuple[str, str]:
    found = examine.findings(examine.Node(node.run_dir, node.state_dir, node.kubelet_dir))
    (one,) = (f for f in found if f.check == "other-plugins")
    return one.level, one.message


def test_agent_and_doctor_tell_of_nvidias_plugin_and_not_of_ours(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")

    def events() -> list[str]:
        notices = [getattr(record, "notice", None) for record in caplog.records]
        return [n.text for n in notices if n and n.reason is EventReason.FOREIGN_DEVICE_PLUGIN]

    assert said_by_doctor(node)[0] == OK
    with socket.socket(socket.AF_UNIX) as plugin:
        plugin.bind(str(node.kubelet_dir / "device-plugins" / "nvidia-gpu.sock"))
        plugin.listen()
        wait_until(lambda: bool(events()), "the agent tells of the other plugin")
        level, message = said_by_doctor(node)

    assert level == FAIL
    assert "NVIDIA's device plugin answers on nvidia-gpu.sock" in message
    assert len(events()) == 1
    assert message in events()[0]
    wait_until(
        lambda: any("any more" in record.getMessage() for record in caplog.records),
        "the agent tells that it has gone",
    )
    assert said_by_doctor(node)[0] == OK
