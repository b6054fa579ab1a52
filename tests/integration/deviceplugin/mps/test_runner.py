"""The MPS runner on a simulated machine: daemons, compute modes, what outlives whom."""

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from deviceplugin.config.source import ConfigSource
from deviceplugin.model.agent_config import ConfigText
from deviceplugin.mps.state_files import (
    FAILED,
    READY,
    lock_path,
    runner_alive,
    state_path,
    wanted_path,
)
from deviceplugin.policy.devices.gpu_numbers import NO_RECORD, GpuRecord, RecordedGpu
from deviceplugin.store.kept_config import KeptConfig
from deviceplugin.store.mps_paths import pipe_directory
from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine, parse_spec
from support import Compile, open_to_others
from support.node.mps_node import DEFAULT_MODE, EXCLUSIVE_PROCESS, MpsNode
from support.sim.mps_control import is_gone
from support.waiting import PATIENCE_S, wait_until

NOBODY = 65534
#: What a tool took on a node whose processors were all taken; less than a daemon may be silent.
LATE_S = 6.0
RPC_FAILURE, UNAVAILABLE = 806, 46


@pytest.fixture
def program(compile_program: Compile) -> Path:
    return compile_program("mps_steady.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))


@pytest.fixture
def node(tmp_path: Path, program: Path) -> Iterator[MpsNode]:
    made = MpsNode(
        Machine.create([PROFILES["h100-80g"]] * 2, tmp_path / "machine"), tmp_path, program
    )
    try:
        yield made
    finally:
        made.close()


def test_a_gpu_is_exclusive_while_its_daemon_runs_and_as_found_afterwards(node: MpsNode) -> None:
    node.machine.set_compute_mode(1, EXCLUSIVE_PROCESS)
    runner = node.start_runner()
    first, other = node.wait_phase(0), node.wait_phase(1)
    assert (node.mode(0), first.found_mode) == (EXCLUSIVE_PROCESS, DEFAULT_MODE)
    assert (node.mode(1), other.found_mode) == (EXCLUSIVE_PROCESS, EXCLUSIVE_PROCESS)
    assert runner_alive(node.run_dir)

    node.end_runner(runner)

    assert node.mode(0) == DEFAULT_MODE
    assert node.mode(1) == EXCLUSIVE_PROCESS  # somebody had chosen that before
    assert node.state().gpus == {}
    assert not psutil.pid_exists(first.daemon)
    assert not psutil.pid_exists(first.server)
    assert not runner_alive(node.run_dir)


def test_the_agents_wish_is_followed_while_it_changes(node: MpsNode) -> None:
    node.want(1)
    node.start_runner()
    kept = node.wait_phase(1)
    assert node.uuids[0] not in node.state().gpus
    steady = node.client(1)

    node.want(0, 1)
    node.wait_phase(0)
    assert node.mode(0) == EXCLUSIVE_PROCESS
    node.want(1)
    node.wait_gone(0)

    assert node.mode(0) == DEFAULT_MODE
    assert node.gpu(1) == kept
    assert steady.works()  # whatever happens to another GPU
    assert node.state().token

    wanted_path(node.run_dir).write_text('{"token": 1, "gpus": ["GPU-')
    wait_until(lambda: "so nothing changes" in node.said(), "the runner has seen the damage")
    node.want(0, 1)
    node.wait_phase(0)
    assert node.gpu(1) == kept


def test_a_killed_runner_leaves_the_daemons_and_the_next_adopts_them(node: MpsNode) -> None:
    runner = node.start_runner()
    before = node.wait_phase(0)
    node.wait_phase(1)
    steady = node.client()

    os.killpg(runner.pid, signal.SIGKILL)
    runner.wait(PATIENCE_S)
    assert steady.works()
    second = node.start_runner()
    wait_until(lambda: node.said().count("MPS daemon adopted") == 2, "both are adopted")
    after = node.wait_phase(0)

    assert (after.daemon, after.server) == (before.daemon, before.server)
    assert steady.works()
    node.wait_phase(1)
    steady.end()
    node.end_runner(second)
    assert node.mode(0) == DEFAULT_MODE  # as the first one found it


def test_a_gpu_of_the_config_that_is_lost_is_left_out(node: MpsNode) -> None:
    node.share(range(3))

    node.start_runner()

    assert node.wait_phase(0).reason == ""
    assert "GPU 2 does not exist and is left out" in node.said()


def keep(node: MpsNode, text: ConfigText, record: GpuRecord = NO_RECORD) -> str:
    """Keeps a config as the agent does; returns the runner's option that names where."""
    state_dir = node.base / "state"
    state_dir.mkdir(exist_ok=True)
    KeptConfig(state_dir).keep(text, record)
    return f"--state-dir={state_dir}"


def test_next_to_a_bad_config_the_kept_one_decides_and_is_not_written(node: MpsNode) -> None:
    node.share(range(1))
    kept = ConfigSource(node.base / "config.yaml").read()
    option = keep(node, kept)
    (node.base / "config.yaml").write_text("version: v2\n")
    state = {each.name: each.read_bytes() for each in (node.base / "state").iterdir()}

    node.start_runner(option)
    node.wait_phase(0)

    assert node.uuids[1] not in node.state().gpus
    assert "the config is bad, so the kept one is used" in node.said()
    assert {each.name: each.read_bytes() for each in (node.base / "state").iterdir()} == state


def test_an_index_means_the_gpu_that_it_meant_to_the_agent(node: MpsNode) -> None:
    node.share(range(1, 2))  # to the agent that was the first of the two that are left
    gpus = enumerate(("GPU-lost", *node.uuids))
    record = GpuRecord(frozenset("1"), tuple(RecordedGpu(i, uuid, "H100") for i, uuid in gpus))
    option = keep(node, ConfigSource(node.base / "config.yaml").read(), record)

    node.start_runner(option)
    node.wait_phase(0)

    assert list(node.state().gpus) == [node.uuids[0]]


def test_of_named_configs_nothing_runs_until_the_agent_has_chosen(node: MpsNode) -> None:
    (node.base / "config.yaml").rename(node.base / "mps")
    (node.base / "config.yaml").mkdir()
    (node.base / "mps").rename(node.base / "config.yaml" / "default")

    runner = node.start_runner(f"--state-dir={node.base / 'none'}")
    wait_until(lambda: "until the agent has said which" in node.said())
    wait_until(lambda: runner_alive(node.run_dir))
    assert node.state().gpus == {}
    node.want(1)
    node.wait_phase(1)

    assert node.uuids[0] not in node.state().gpus
    node.end_runner(runner)
    # After a reboot: the run directory is empty, and the agent not there yet.
    shutil.rmtree(node.run_dir)
    text = (node.base / "config.yaml" / "default").read_text().replace("0, 1", "0")
    node.start_runner(keep(node, ConfigText("a100", text, "a100", "a label")))
    node.wait_phase(0)
    assert node.uuids[1] not in node.state().gpus


@pytest.mark.long
def test_tied_daemons_end_with_their_runner(node: MpsNode) -> None:
    node.want(0)
    runner = node.start_runner("--tied")
    gpu = node.wait_phase()

    runner.kill()

    wait_until(lambda: not psutil.pid_exists(gpu.daemon), "the daemon ends")
    wait_until(lambda: not psutil.pid_exists(gpu.server), "its server without clients ends")


def test_compute_modes_are_put_back_after_runner_and_daemons_were_killed(node: MpsNode) -> None:
    runner = node.start_runner()
    gpus = [node.wait_phase(0), node.wait_phase(1)]
    runner.kill()
    runner.wait(PATIENCE_S)
    for gpu in gpus:
        os.kill(gpu.server, signal.SIGKILL)
        os.kill(gpu.daemon, signal.SIGKILL)
    assert node.mode(0) == EXCLUSIVE_PROCESS

    node.want()
    node.start_runner()

    node.wait_gone(0)
    node.wait_gone(1)
    assert (node.mode(0), node.mode(1)) == (DEFAULT_MODE, DEFAULT_MODE)


def test_a_server_that_dies_is_replaced_and_counted(node: MpsNode) -> None:
    node.want(0)
    node.start_runner()
    before = node.wait_phase()
    steady = node.client()

    os.kill(before.server, signal.SIGKILL)

    wait_until(lambda: node.gpu().restarts == 1, "it is noticed")
    after = node.wait_phase()
    assert after.daemon == before.daemon
    assert after.server not in (0, before.server)
    wait_until(lambda: steady.ask()[1] == RPC_FAILURE, "the client knows")
    assert node.client().works()

    os.kill(after.server, signal.SIGKILL)

    wait_until(lambda: node.gpu().restarts == 2, "it is noticed")
    node.wait_phase()
    assert [
        line.rpartition("pause_s=")[2]
        for line in node.said().splitlines()
        if "ended by itself" in line
    ] == ["0", "1"]


def test_changed_settings_are_put_back(node: MpsNode) -> None:
    node.want(0)
    node.start_runner()
    server = node.wait_phase().server
    questions = (
        "get_default_active_thread_percentage",
        "get_default_device_pinned_mem_limit 0",
        f"get_active_thread_percentage {server}",
        f"get_device_pinned_mem_limit {server} 0",
    )
    before = [node.ask(question) for question in questions]

    changes = (
        "set_default_active_thread_percentage 7",
        "set_default_device_pinned_mem_limit 0 64M",
        f"set_active_thread_percentage {server} 7",
        f"set_device_pinned_mem_limit {server} 0 64M",
    )

    def is_restored(times: int) -> bool:
        return node.gpu().restored == times

    for number, change in enumerate(changes, start=1):
        node.ask(change)
        wait_until(partial(is_restored, number), f"{change} is noticed")

    assert [node.ask(question) for question in questions] == before
    assert node.gpu().server == server


def test_a_quit_through_the_pipe_does_not_last(node: MpsNode) -> None:
    node.want(0)
    node.start_runner()
    before = node.wait_phase()

    node.ask("quit")

    wait_until(lambda: node.gpu().restarts == 1, "it is noticed")
    assert node.wait_phase().daemon != before.daemon


@pytest.mark.root
def test_clients_of_several_users_have_unequal_shares(node: MpsNode) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    node.run_dir.mkdir()  # 0700 on a node; containers come in through a bind mount
    open_to_others(node.base)
    open_to_others(node.program.parent)
    node.want(0)
    node.start_runner()
    server = node.wait_phase().server

    one = node.client(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="60")
    other = node.client(user=NOBODY, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25")

    assert (one.first, other.first) == (0, 0)
    assert node.gpu().server == server
    assert one.works()
    assert other.works()
    percentages = {c.pid: c.percentage for c in node.machine.books()[0].clients}
    assert percentages[one.process.pid] == 60
    assert percentages[other.process.pid] == 25


# ---- answers that come late ------------------------------------------------------------------


def test_a_daemon_that_takes_its_settings_late_is_up_all_the_same(node: MpsNode) -> None:
    environment = node.late_tool()
    node.be_late("set_default_active_thread_percentage", LATE_S)
    node.want(0)
    node.start_runner(environment=environment)

    daemon = node.wait_phase().daemon

    assert node.late_answers() == 1
    assert "cannot be served" not in node.said()
    assert node.said().count("MPS daemon started") == 1
    assert psutil.pid_exists(daemon)


@pytest.mark.long
def test_late_answers_about_settings_are_no_outage(node: MpsNode) -> None:
    environment = node.late_tool()
    node.want(0)
    node.start_runner(environment=environment)
    before = node.wait_phase()

    node.be_late("get_default_device_pinned_mem_limit", LATE_S)
    wait_until(lambda: node.late_answers() >= 3, "three questions are answered late")

    assert node.gpu() == before
    assert "cannot be served" not in node.said()

    # A server that ends while an answer is awaited is replaced before that could come.
    node.be_late("get_default_device_pinned_mem_limit", 1000.0)
    os.kill(before.server, signal.SIGKILL)
    wait_until(lambda: node.gpu().restarts == 1, "it is noticed")


@pytest.mark.long
def test_a_daemon_that_is_silent_for_long_is_told_of_and_comes_back(node: MpsNode) -> None:
    environment = node.late_tool()
    node.want(0)
    node.start_runner(environment=environment)
    node.wait_phase()

    node.be_late("get_default_device_pinned_mem_limit", 1000.0)
    failed = node.wait_phase(0, FAILED)
    assert "did not answer in 20 s" in failed.reason

    node.be_late("nothing", 0.0)
    node.wait_phase()


def test_who_is_told_to_end_waits_for_no_answer(node: MpsNode) -> None:
    environment = node.late_tool()
    node.be_late("set_default_active_thread_percentage", 1000.0)
    node.want(0)
    runner = node.start_runner(environment=environment)
    wait_until(lambda: node.gpu().daemon, "the daemon is started")

    node.end_runner(runner)

    assert "did not answer" not in node.said()
    assert node.mode(0) == DEFAULT_MODE


# ---- what is in the way ----------------------------------------------------------------------


@pytest.mark.long
def test_another_daemon_on_the_gpu_is_told_of_and_the_other_gpu_goes_on(node: MpsNode) -> None:
    elsewhere = node.start_runner(environment={"VGPU_RUN_DIR": "unused"})
    node.wait_phase(0)
    second = MpsNode(node.machine, node.base / "second", node.program)
    try:
        second.want(0)
        second.start_runner()
        failed = second.wait_phase(0, FAILED)
        assert f"no MPS server starts on GPU {node.uuids[0]}" in failed.reason
        assert node.client().works()
        assert node.gpu(1).phase == READY

        node.end_runner(elsewhere)

        second.wait_phase(0)  # it is tried again
    finally:
        second.close()


@pytest.mark.long
def test_a_strange_daemon_in_our_pipe_directory_is_left_alone(node: MpsNode) -> None:
    # A daemon of a runner that has gone, whose environment does not say so.
    stranger = node.start_daemon(0)
    node.want(0, 1)
    node.start_runner()

    failed = node.wait_phase(0, FAILED)

    assert "an MPS daemon that this runner did not start answers in" in failed.reason
    assert stranger.poll() is None
    node.wait_phase(1)
    stranger.terminate()
    stranger.wait(PATIENCE_S)
    node.wait_phase(0)


def test_files_of_a_dead_daemon_are_no_hindrance(node: MpsNode) -> None:
    stranger = node.start_daemon(0)
    stranger.kill()
    stranger.wait(PATIENCE_S)
    pipe = pipe_directory(node.run_dir, node.uuids[0])
    assert (pipe / "control").is_socket()
    (pipe / "deep" / "er").mkdir(parents=True)
    (pipe / "link").symlink_to(node.base / "config.yaml")
    inode = pipe.stat().st_ino

    node.want(0)
    node.start_runner()

    node.wait_phase(0)
    assert "removed what a dead MPS daemon left" in node.said()
    assert pipe.stat().st_ino == inode  # containers have it mounted
    assert not (pipe / "deep").exists()
    assert (node.base / "config.yaml").exists()


def test_a_link_to_another_gpus_daemon_is_not_followed(node: MpsNode) -> None:
    node.want(0, 1)
    node.start_runner()
    node.wait_phase(0)
    other = node.wait_phase(1)
    pipe, others = (pipe_directory(node.run_dir, uuid) for uuid in node.uuids)
    (pipe / "control").unlink()
    (pipe / "control").symlink_to(others / "control")

    node.want(1)
    node.wait_gone(0)

    assert "is a link, which no MPS daemon makes" in node.said()
    assert node.gpu(1) == other
    assert node.client(1).works()
    assert node.mode(0) == DEFAULT_MODE


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (replace(PROFILES["t4"], compute_capability=(6, 1)), "before Volta"),
        (parse_spec("a100-40g/mig=1g.5gb*2").profiles[0], "has MIG on"),
    ],
)
def test_a_gpu_that_cannot_do_mps_is_refused_in_words(
    tmp_path: Path, program: Path, profile: object, reason: str
) -> None:
    machine = Machine.create([profile, PROFILES["t4"]], tmp_path / "m")  # type: ignore[list-item]
    node = MpsNode(machine, tmp_path, program)
    try:
        node.want(0, 1)
        node.start_runner()
        failed = node.wait_phase(0, FAILED)
        assert reason in failed.reason
        assert failed.found_mode is None
        node.wait_phase(1)
    finally:
        node.close()


@pytest.mark.long
def test_a_process_on_the_gpu_is_told_of(node: MpsNode) -> None:
    alone = node.client(CUDA_MPS_PIPE_DIRECTORY="/nonexistent")
    node.want(0)
    node.start_runner()

    failed = node.wait_phase(0, FAILED)

    assert f"is used by process {alone.process.pid} without MPS" in failed.reason
    assert node.mode(0) == DEFAULT_MODE
    assert alone.works()
    alone.end()
    node.wait_phase(0)


@pytest.mark.parametrize("killed", [("server",), ("server", "daemon")], ids=" and ".join)
def test_who_takes_the_gpu_while_its_daemon_is_away_is_told_of(
    node: MpsNode, killed: tuple[str, ...]
) -> None:
    """The GPU is that program's alone, so no container may start for MPS until it has ended."""
    node.want(0)
    runner = node.start_runner()
    before = node.wait_phase()
    runner.send_signal(signal.SIGSTOP)
    for pid in (getattr(before, each) for each in killed):
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(is_gone, pid), "it ends")
    alone = node.client(CUDA_MPS_PIPE_DIRECTORY="/nonexistent")

    runner.send_signal(signal.SIGCONT)
    failed = node.wait_phase(0, FAILED)

    assert f"is used by process {alone.process.pid} without MPS" in failed.reason
    assert node.client().first == UNAVAILABLE
    assert alone.works()
    alone.end()
    assert node.wait_phase().restarts == 1
    assert node.client().works()


def test_who_takes_the_gpu_while_no_runner_is_there_is_told_of_by_the_next(node: MpsNode) -> None:
    node.want(0)
    runner = node.start_runner()
    before = node.wait_phase()
    runner.kill()
    runner.wait(PATIENCE_S)
    for pid in (before.server, before.daemon):
        os.kill(pid, signal.SIGKILL)
        wait_until(partial(is_gone, pid), "it ends")
    alone = node.client(CUDA_MPS_PIPE_DIRECTORY="/nonexistent")

    node.start_runner()
    failed = node.wait_phase(0, FAILED)

    assert f"is used by process {alone.process.pid} without MPS" in failed.reason
    alone.end()
    assert node.wait_phase().found_mode == DEFAULT_MODE
    assert node.client().works()


def test_without_the_tool_the_runner_says_so(node: MpsNode) -> None:
    runner = node.start_runner(environment={"PATH": "/nonexistent"})

    assert runner.wait(PATIENCE_S) == 1
    assert "nvidia-cuda-mps-control is not in PATH" in node.said()
    assert "nvidia-cuda-mps-control is not in PATH" in node.state().problem


def test_a_second_runner_says_that_there_is_one(node: MpsNode) -> None:
    node.want()
    node.start_runner()
    wait_until(lambda: runner_alive(node.run_dir), "the first one runs")

    assert node.start_runner().wait(PATIENCE_S) == 1
    assert "another process runs the MPS daemons" in node.said()


def test_a_daemon_whose_pipe_directory_is_empty_is_replaced(node: MpsNode) -> None:
    """Who removes a run directory cannot remove the file systems that are mounted in it."""
    node.start_runner()
    before = node.wait_phase(0)
    for entry in pipe_directory(node.run_dir, node.uuids[0]).iterdir():
        entry.unlink()
    state_path(node.run_dir).unlink()

    wait_until(lambda: node.gpu().daemon not in (0, before.daemon), "a new daemon")
    node.wait_phase(0)
    assert node.client().works()


@pytest.mark.long
def test_an_emptied_run_directory_is_made_anew(node: MpsNode) -> None:
    runner = node.start_runner()
    before = node.wait_phase(0)
    node.wait_phase(1)

    shutil.rmtree(node.run_dir, ignore_errors=True)  # the runner may write meanwhile

    wait_until(lambda: state_path(node.run_dir).exists(), "it says how it is")
    wait_until(lambda: node.gpu().daemon not in (0, before.daemon), "a new daemon")
    node.wait_phase(0)
    node.wait_phase(1)
    assert lock_path(node.run_dir).exists()
    assert node.client().works()
    node.end_runner(runner)
    assert node.mode(0) == DEFAULT_MODE
