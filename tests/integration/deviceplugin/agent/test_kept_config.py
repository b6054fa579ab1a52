"""A bad config file is no time bomb: an agent that restarts next to it serves the kept one."""

import logging
import time
import urllib.request
from collections.abc import Iterator

import pytest

from deviceplugin.config.source import ConfigText
from deviceplugin.model.gpus import GpuListing
from deviceplugin.model.notices import EventReason
from deviceplugin.store.kept_config import FILE, KeptConfig
from libvgpu.errors import ConfigError
from support.node.agent_process import ProcessNode
from support.node.in_process import CONFIG, GIB, InProcessNode, running_node, wait_until_lost
from support.waiting import PATIENCE_S, wait_until
from vgpuctl.agent_client import agent_report
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


def scrape(node: InProcessNode, caplog: pytest.LogCaptureFixture) -> str:
    started = next(r for r in caplog.records if r.message == "agent started")
    address = started.fields["metrics"]  # type: ignore[attr-defined]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


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
    wait_until(lambda: "agent started" in caplog.messages)
    assert "vgpu_config_reload_success 0.0" in scrape(node, caplog)
    (rejected,) = [r for r in caplog.records if r.message.startswith("config rejected")]
    notice = rejected.notice  # type: ignore[attr-defined]
    assert (notice.reason, notice.text) == (EventReason.CONFIG_REJECTED, told.error)

    node.config.write_text(CONFIG + "limits:\n- {memory: 5Gi}\n")
    wait_until(lambda: node.limit(pod).memory_limit_bytes == 5 * GIB)
    (finding,) = agent_checks.config(agent_report(node.run_dir))
    assert finding.level == OK
    assert not agent_report(node.run_dir).config.is_kept


def test_what_was_kept_is_the_last_accepted_edit_and_no_rejected_one(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    pod = node.admit("a", PAIR)
    node.config.write_text(RULE.replace("3Gi", "2Gi"))
    wait_until(lambda: node.limit(pod).memory_limit_bytes == 2 * GIB)
    node.config.write_text(BAD["unknown key"] or "")
    wait_until(lambda: agent_report(node.run_dir).config.error is not None)

    restart(node, caplog)
    restart(node, caplog)

    assert node.limit(pod).memory_limit_bytes == 2 * GIB


def test_what_an_earlier_version_accepted_is_served_on_and_said_to_be_changed(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    pod = node.admit("a", PAIR)
    old = RULE.replace("3Gi", str(2 * GIB))  # bytes without a unit
    node.stop_agent()
    node.config.write_text(old)
    KeptConfig(node.state_dir).keep(ConfigText(str(node.config), old))

    for _ in range(2):
        restart(node, caplog)

        assert node.limit(pod).memory_limit_bytes == 2 * GIB
        (rejected,) = [r for r in caplog.records if r.message.startswith("config rejected")]
        reason = rejected.notice.text  # type: ignore[attr-defined]
        assert f"limits[0].memory '{2 * GIB}' has no unit" in reason
        assert "did you mean 2Gi" in reason


def test_a_kept_config_whose_gpu_is_gone_serves_the_others_and_says_both(
    node: InProcessNode, caplog: pytest.LogCaptureFixture
) -> None:
    from support.node import in_process as in_process_node

    caplog.set_level(logging.INFO, "deviceplugin")
    put(node, None)
    fewer = (in_process_node.MPS_GPU, in_process_node.VGPU_GPU)
    node.inventory.found = GpuListing(fewer)

    restart(node, caplog)

    node.limit(node.admit("a", PAIR))
    told = agent_report(node.run_dir).config
    assert told.error is not None
    assert "No such file" in told.error
    (skipped,) = [r for r in caplog.records if r.message == "a part of the config is skipped"]
    reason = skipped.fields["reason"]  # type: ignore[attr-defined]
    assert f"{node.config} (kept) line 5: GPU 2 does not exist" in reason


@pytest.mark.parametrize("damage", ["none kept", "damaged"])
def test_without_a_kept_one_a_bad_config_ends_the_agent_as_ever(
    node: InProcessNode, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    node.stop_agent()
    kept = node.state_dir / FILE
    if damage == "damaged":
        kept.write_bytes(kept.read_bytes()[:-30])
    else:
        kept.unlink()
    node.config.write_text(BAD["unknown key"] or "")

    node.start_agent()
    node._thread.join(PATIENCE_S)  # type: ignore[union-attr]

    assert isinstance(node.failure, ConfigError)
    assert node.failure.exit_status == 2
    assert "unknown key 'sharring'" in str(node.failure)
    assert ("is damaged" in str(node.failure)) == (damage == "damaged")
    assert ("the kept config cannot be used" in caplog.messages) == (damage == "damaged")
    node.config.write_text(RULE)
    node.start_agent()
    node.wait_registered()


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
