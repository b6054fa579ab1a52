"""The agent's MPS keeper, with a runner that the test plays by writing its file."""

import contextlib
import fcntl
import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.http.mps_metrics import mps_families
from deviceplugin.model.allocations import Owner
from deviceplugin.model.notices import THIS_NODE, EventReason
from deviceplugin.mps import control_pipe
from deviceplugin.mps.keeper import MpsKeeper
from deviceplugin.mps.state_files import (
    FAILED,
    READY,
    STARTING,
    STOPPING,
    GpuMps,
    MpsState,
    lock_path,
    mps_directory,
    read_wanted,
    wanted_path,
    write_state,
)
from deviceplugin.mps.telling import MpsTelling
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.errors import MpsError
from support.waiting import PATIENCE_S

UUID, OTHER = "GPU-a", "GPU-b"
SHORT_S = 0.3


class FakeRunner:
    """A runner as far as its lock and its file tell."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        mps_directory(run_dir).mkdir(parents=True, exist_ok=True)
        self._lock = open(lock_path(run_dir), "ab")  # noqa: SIM115 — held until `end`
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def say(self, **gpus: GpuMps) -> None:
        """Says how GPUs are, as an answer to what is wanted now."""
        wanted = read_wanted(self.run_dir)
        named = {name.replace("_", "-"): gpu for name, gpu in gpus.items()}
        write_state(self.run_dir, MpsState(wanted.token if wanted else "", "", named))

    def end(self) -> None:
        self._lock.close()

    close = end


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def runner(run_dir: Path) -> Iterator[FakeRunner]:
    made = FakeRunner(run_dir)
    yield made
    made.end()


class Demand:
    """What containers need, as a test says."""

    def __init__(self, *uuids: str, owners: Sequence[Owner] = ()) -> None:
        self.uuids, self.owners = list(uuids), owners

    def mps_gpus(self) -> dict[str, bool]:
        return dict.fromkeys(self.uuids, True)

    def tenants_on(self, uuid: str) -> Sequence[tuple[str, Owner | None]]:
        return [(owner.pod, owner) for owner in self.owners]


def keeper_of(run_dir: Path, *uuids: str, spawn: bool = False) -> MpsKeeper:
    config = run_dir.parent / "config.yaml"
    return MpsKeeper(config, run_dir, spawn, Demand(*uuids), SHORT_S)


def test_what_is_wanted_is_written_when_it_changes_and_only_then(run_dir: Path) -> None:
    keeper = keeper_of(run_dir, UUID)
    keeper.look()
    first = read_wanted(run_dir)
    assert first is not None
    assert first.gpus == {UUID: True}
    inode = wanted_path(run_dir).stat().st_ino

    keeper.look()
    keeper_of(run_dir, UUID).look()  # an agent that was started again
    assert wanted_path(run_dir).stat().st_ino == inode
    keeper_of(run_dir, UUID, OTHER).look()

    second = read_wanted(run_dir)
    assert second is not None
    assert second.gpus == {UUID: True, OTHER: True}
    assert second.token != first.token


def test_a_node_without_mps_has_no_files_of_it(run_dir: Path) -> None:
    run_dir.mkdir()

    keeper_of(run_dir, spawn=True).look()

    assert list(run_dir.iterdir()) == []


def test_a_damaged_wish_is_written_again(run_dir: Path) -> None:
    mps_directory(run_dir).mkdir(parents=True)
    wanted_path(run_dir).write_text("{")

    keeper_of(run_dir, UUID).look()

    wanted = read_wanted(run_dir)
    assert wanted is not None
    assert wanted.gpus == {UUID: True}


def test_a_client_waits_for_the_answer_to_the_present_wish(
    run_dir: Path, runner: FakeRunner
) -> None:
    demand = Demand(UUID)
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, demand, SHORT_S)
    keeper.look()
    runner.say(GPU_a=GpuMps(READY))
    keeper.wait([UUID], under_mps=True)

    demand.uuids.append(OTHER)

    with pytest.raises(MpsError, match="the runner has not read yet what is wanted"):
        keeper.wait([UUID], under_mps=True)


def test_a_client_starts_as_soon_as_its_gpu_is_ready(run_dir: Path, runner: FakeRunner) -> None:
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, Demand(UUID), PATIENCE_S)
    keeper.look()
    runner.say(GPU_a=GpuMps(STARTING))
    started = threading.Thread(target=keeper.wait, args=([UUID], True))
    started.start()
    started.join(SHORT_S)
    assert started.is_alive()

    runner.say(GPU_a=GpuMps(READY))

    started.join(PATIENCE_S)
    assert not started.is_alive()


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (GpuMps(FAILED, "GPU GPU-a has MIG on"), "GPU GPU-a has MIG on"),
        (GpuMps(STARTING), "the MPS daemon of GPU GPU-a is not ready after 0 s: it is starting"),
        (None, "the MPS daemon of GPU GPU-a is not ready after 0 s: the runner does not know it"),
    ],
)
def test_what_is_not_reached_is_told(
    run_dir: Path, runner: FakeRunner, now: GpuMps | None, sentence: str
) -> None:
    keeper = keeper_of(run_dir, UUID)
    keeper.look()
    runner.say(**({} if now is None else {"GPU_a": now}))

    with pytest.raises(MpsError) as refusal:
        keeper.wait([UUID], under_mps=True)

    assert sentence in refusal.value.message


def test_a_whole_gpu_waits_until_its_daemon_is_gone(run_dir: Path, runner: FakeRunner) -> None:
    keeper = keeper_of(run_dir, OTHER)
    keeper.look()
    runner.say(GPU_a=GpuMps(STOPPING, found_mode=0), GPU_b=GpuMps(READY))
    with pytest.raises(MpsError, match=r"needs without MPS, is not free of it.*is stopping"):
        keeper.wait([UUID], under_mps=False)

    runner.say(GPU_b=GpuMps(READY))

    keeper.wait([UUID], under_mps=False)


def test_without_a_runner_a_whole_gpu_is_bare_unless_one_left_it_otherwise(
    run_dir: Path, runner: FakeRunner
) -> None:
    keeper = keeper_of(run_dir)
    runner.say(GPU_a=GpuMps(READY, found_mode=0))
    runner.end()

    keeper.wait([OTHER], under_mps=False)
    with pytest.raises(MpsError, match="no runner lives that could end its daemon"):
        keeper.wait([UUID], under_mps=False)


def test_a_gpu_that_never_was_under_mps_is_not_waited_for(
    run_dir: Path, runner: FakeRunner
) -> None:
    keeper = keeper_of(run_dir, OTHER)
    write_state(run_dir, MpsState("an older wish", "", {OTHER: GpuMps(READY)}))

    began = time.monotonic()
    keeper.wait([UUID], under_mps=False)  # it starts in time slices, whatever the runner is at
    assert time.monotonic() - began < SHORT_S

    runner.say(GPU_a=GpuMps(STOPPING, found_mode=0))
    with pytest.raises(MpsError, match="needs without MPS, is not free of it"):
        keeper.wait([UUID], under_mps=False)


def test_why_no_runner_lives_is_told_at_once(run_dir: Path, runner: FakeRunner) -> None:
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, Demand(UUID), PATIENCE_S)
    keeper.look()
    write_state(run_dir, MpsState("", "no-such-tool is not in PATH", {}))
    runner.end()
    began = time.monotonic()

    with pytest.raises(MpsError, match="no-such-tool is not in PATH"):
        keeper.wait([UUID], under_mps=True)

    assert time.monotonic() - began < PATIENCE_S / 3


def test_without_a_runner_a_late_answer_is_waited_for(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, Demand(UUID))
    keeper.look()
    pipe_directory(run_dir, UUID).mkdir(parents=True)
    tool = tmp_path / "bin" / control_pipe.TOOL
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(6)\nprint(100.0)\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))

    keeper.wait([UUID], under_mps=True)


def test_no_answer_is_waited_for_longer_than_the_container_waits(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_s: list[float] = []

    def silent(run_dir: Path, uuid: str, timeout_s: float, is_given_up: Callable[[], bool]) -> bool:
        asked_s.append(timeout_s)
        time.sleep(SHORT_S)
        assert not is_given_up()
        with contextlib.closing(FakeRunner(run_dir)):
            assert is_given_up()  # from now on its word counts
        return False

    monkeypatch.setattr("deviceplugin.mps.keeper.is_ready", silent)
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, Demand(UUID), 2.0)
    with pytest.raises(MpsError, match="is not ready after 2 s: no runner lives"):
        keeper.wait([UUID], under_mps=True)

    assert all(1.0 <= each_s <= 2.0 for each_s in asked_s)


def test_what_the_runner_did_reaches_log_pods_and_metrics(
    run_dir: Path, runner: FakeRunner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    owners = [Owner("team", "a", "main"), Owner("team", "b", "main")]
    demand = Demand(UUID, owners=owners)
    keeper = MpsKeeper(run_dir.parent / "config.yaml", run_dir, False, demand, SHORT_S)
    calm = GpuMps(READY, restarts=3, restored=1)  # what an earlier agent has told already
    runner.say(GPU_a=calm)
    keeper.look()
    caplog.clear()

    runner.say(GPU_a=replace(calm, restarts=4, restored=2))
    keeper.look()
    keeper.look()
    runner.say(GPU_a=replace(calm, phase=FAILED, reason="it has MIG on", restarts=4, restored=2))
    keeper.look()

    told = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [r.message for r in told] == [
        "MPS server ended, its clients lost their work",
        "MPS server ended, its clients lost their work",
        "MPS settings were changed and put back",
        "MPS of a GPU cannot be served",
    ]
    notices = [r.__dict__["notice"] for r in told]
    assert [(n.reason, n.subject) for n in notices] == [
        (EventReason.MPS_SERVER_ENDED, Owner("team", "a", "main")),
        (EventReason.MPS_SERVER_ENDED, Owner("team", "b", "main")),
        (EventReason.MPS_SETTINGS_RESTORED, THIS_NODE),
        (EventReason.MPS_UNAVAILABLE, THIS_NODE),
    ]
    assert notices[-1].text == "it has MIG on"
    samples = [s for family in mps_families(keeper.states()) for s in family.samples]
    assert [(s.name, s.labels, s.value) for s in samples] == [
        ("vgpu_mps_ready", {"gpu": "GPU-a"}, 0),
        ("vgpu_mps_restarts_total", {"gpu": "GPU-a"}, 4),
        ("vgpu_mps_client_faults_total", {"gpu": "GPU-a"}, 0),
        ("vgpu_mps_settings_restored_total", {"gpu": "GPU-a"}, 2),
    ]


def test_a_fault_is_told_to_those_who_had_processes_lately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owners = {name: Owner("team", name, "main") for name in ("gone", "runs", "idle", "long-gone")}
    running = {"gone", "runs", "long-gone"}
    now_s = [100.0]

    class Here:
        def tenants_on(self, uuid: str) -> Sequence[tuple[str, Owner | None]]:
            return list(owners.items()) if uuid == UUID else [("other", None)]

    telling = MpsTelling(Here(), running.__contains__, lambda: now_s[0])
    calm = GpuMps(READY)
    telling.follow({UUID: calm})
    running.discard("long-gone")
    now_s[0] += 8.0
    telling.follow({UUID: calm})
    running.discard("gone")
    now_s[0] += 4.0

    telling.follow({UUID: replace(calm, faults=1)})
    telling.follow({UUID: replace(calm, faults=1)})

    notices = [r.__dict__["notice"] for r in caplog.records]
    assert [(n.reason, n.subject) for n in notices] == [
        (EventReason.MPS_CLIENT_FAULT, owners["gone"]),
        (EventReason.MPS_CLIENT_FAULT, owners["runs"]),
    ]
    assert notices[0].text == (
        "a fatal fault of one client of the MPS server of GPU GPU-a ended the work of all its "
        "clients; MPS does not say whose it was, and takes no new clients until these have ended"
    )
    caplog.clear()
    running.clear()
    now_s[0] += 60.0
    telling.follow({UUID: replace(calm, restarts=1, faults=1)})
    (record,) = caplog.records
    assert record.__dict__["notice"].subject == THIS_NODE  # nobody had a process


def test_the_keeper_adopts_a_runner_and_otherwise_waits(
    run_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "deviceplugin")
    keeper = keeper_of(run_dir, UUID)
    keeper.look()
    runner = FakeRunner(run_dir)
    keeper.look()
    runner.end()

    assert [r.message for r in caplog.records] == [
        "waiting for the MPS daemons of another process",
        "MPS daemons adopted",
    ]


def test_a_started_runner_is_detached_knows_where_the_configs_are_and_has_a_log(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = run_dir.parent / "argv"
    python = run_dir.parent / "python"
    python.write_text(
        f'#!/bin/sh\necho "$@" > {recorded}; cut -d" " -f6 /proc/$$/stat >> {recorded}\n'
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    config, state_dir = run_dir.parent / "configs", run_dir.parent / "state"
    keeper = MpsKeeper(config, run_dir, True, Demand(UUID), SHORT_S, state_dir=state_dir)

    keeper.look()

    assert keeper._child is not None
    assert keeper._child.wait(PATIENCE_S) == 0
    arguments, session = recorded.read_text().splitlines()
    assert arguments.split()[:2] == ["-m", "deviceplugin.mps"]
    given = dict(itertools.pairwise(arguments.split()))
    assert (given["--config"], given["--state-dir"]) == (str(config), str(state_dir))
    assert "--detach" in arguments
    assert int(session) == keeper._child.pid != os.getsid(0)
    assert lock_path(run_dir).with_name("runner.log").exists()
