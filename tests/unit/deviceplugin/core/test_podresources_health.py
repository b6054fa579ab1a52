"""When a kubelet counts as silent, and what that costs an admission."""

import logging
from pathlib import Path
from unittest import mock

import pytest

from deviceplugin.core.parts import Allocations, Sources
from deviceplugin.core.podresources_health import SILENT_AFTER_S, PodResourcesHealth
from deviceplugin.core.podresources_sync import PodResourcesSync
from deviceplugin.store.checkpoint import Checkpoint
from deviceplugin.store.node_state import NodeState
from libvgpu.errors import VgpuError


def test_a_moment_is_a_restart_and_what_lasts_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = [100.0]
    health = PodResourcesHealth(lambda: now[0])
    health.failed("no socket", lambda: None)
    now[0] += SILENT_AFTER_S - 0.1
    health.failed("no socket", lambda: None)
    assert (health.is_failing, health.is_silent, health.problem) == (True, False, None)
    health.answered()
    now[0] += 1
    health.failed("no socket", lambda: None)
    assert not health.is_silent, "it had answered meanwhile"

    now[0] += SILENT_AFTER_S
    health.failed("no socket", lambda: None)
    health.failed("no socket", lambda: None)
    assert "no socket; units of pods that have ended come back later" in (health.problem or "")
    health.failed("no socket", lambda: "it is torn")
    assert "do not come back, since it is torn" in (health.problem or "")
    health.answered()
    health.answered()

    assert (health.is_failing, health.problem) == (False, None)
    assert [record.message for record in caplog.records] == [
        "podresources does not answer",
        "the kubelet's podresources answers again",
    ]


def test_an_admission_does_not_wait_for_a_kubelet_that_is_silent(tmp_path: Path) -> None:
    asked: list[float] = []
    now = [100.0]

    def fail() -> list[object]:
        asked.append(now[0])
        raise VgpuError("no socket")

    looks = PodResourcesSync(
        Allocations(NodeState(Checkpoint(tmp_path)), mock.Mock(), mock.Mock()),
        Sources(fail, clock=lambda: now[0]),  # type: ignore[arg-type]
    )
    assert looks.look(is_asked=True) is None
    now[0] += SILENT_AFTER_S
    assert looks.look(is_asked=True) is None
    assert len(asked) == 2

    assert looks.look(is_asked=True) is None
    assert len(asked) == 2
    assert looks.look() is None, "the agent itself goes on asking"
    assert len(asked) == 3
