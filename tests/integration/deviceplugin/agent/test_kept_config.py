"""A bad config file is no time bomb: an agent that restarts next to it serves the kept one."""

import logging
import time
from collections.abc import Iterator

import pytest

from deviceplugin.model.notices import EventReason
from support.node.agent_process import ProcessNode
from support.node.in_process import CONFIG, GIB, InProcessNode, running_node, wait_until_lost
from support.waiting import wait_until
from vgpuctl.agent_client import agent_report, metrics_page
from vgpuctl.doctor import agent_checks
from vgpuctl.doctor.finding import FAIL, OK

PAIR = {"vgpu-core": 50, "vgpu-memory": 8}
RULE = CONFIG + "limits:\n- {memory: 3Gi}\n"
BAD = {
    "unknown key": RULE.replace("sharing", "sharring"),
    "not YAML": RULE + "- {",
    "two families": RULE.replace("[1, 2]", "[1, GPU-aaaaaaaa-0000-0000-0000-000000000000]"),
    "no file": None,
}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessNode]:
    with running_node(monkeypatch, config=RULE) as node:
        yield node


def put(node: InProcessNode, text: str | None) -> None:
    if text is None:
        node.config.unlink()
    else:
        node.config.write_text(text)


def restart(node: InProcessNode, caplog: pytest.LogCaptureFixture) -> None:
    node.stop_agent()
    caplog.clear()
    node.start_agent()
    node.wait_registered()
    wait_until(lambda: node.run_dir.joinpath("agent.sock").exists())


@pytest.mark.parametrize("kind", list(BAD))
def test_an_agent_that_restarts_next_to_a_bad_config_serves_with_the_last_good_one(
    node: InProcessNode, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    pod = node.admit("a", PAIR)
    assert node.limit(pod).memory_limit_bytes == 3 * GIB
    digest = agent_report(node.run_dir).config.digest
    put(node, BAD[kind])

    restart(node, caplog)

    # `limit` starts the container again, through PreStartContainer; new pods are admitted.
    assert node.limit(pod).memory_limit_bytes == 3 * GIB
    assert node.limit(node.admit("b", PAIR)).memory_limit_bytes == 3 * GIB
    told = agent_report(node.run_dir).config
    assert (told.digest, told.is_kept) == (digest, True)
    assert told.error
    (finding,) = agent_checks.config(agent_report(node.run_dir))
    assert (finding.level, told.error in finding.message) == (FAIL, True)
    assert "vgpu_config_reload_success 0.0" in metrics_page(node.run_dir)
    (rejected,) = [r for r in caplog.records if r.message.startswith("config rejected")]
    notice = rejected.notice  # type: ignore[attr-defined]
    assert (notice.reason, notice.text) == (EventReason.CONFIG_REJECTED, told.error)

    node.config.write_text(CONFIG + "limits:\n- {memory: 5Gi}\n")
    wait_until(lambda: node.limit(pod).memory_limit_bytes == 5 * GIB)
    # The agent says so once all limits are written, which a slow machine sees one by one.
    wait_until(lambda: not agent_report(node.run_dir).config.is_kept)
    (finding,) = agent_checks.config(agent_report(node.run_dir))
    assert finding.level == OK


def test_an_agent_killed_at_any_time_keeps_a_config_that_was_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_node(monkeypatch, ProcessNode, RULE) as node:
        assert isinstance(node, ProcessNode)
        for number in range(3):
            node.config.write_text(RULE.replace("3Gi", f"{number + 4}Gi"))
            time.sleep(0.25 * number)
            node.kill_agent()
            wait_until_lost(node.kubelet)  # else it calls the one that has ended
            node.config.write_text("version: v2\n")
            node.start_agent()
            node.wait_registered()

            pod = node.admit(f"a{number}", PAIR)

            assert node.limit(pod).memory_limit_bytes in {n * GIB for n in range(3, 8)}
            node.kubelet.finish(pod)
