"""MPS of the simulated GPU: the control tool, shares and memory limits of its clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from libvgpu.sim import Machine
from support.sim.mps_control import Control
from support.sim.programs import busy, run, said_in, shares
from support.waiting import PATIENCE_S


@pytest.fixture
def no_daemon(machine: Machine, tmp_path: Path) -> Control:
    return Control(machine, tmp_path)


@pytest.fixture
def control(no_daemon: Control) -> Iterator[Control]:
    with no_daemon.running():
        yield no_daemon


def test_without_a_daemon_the_tool_says_so(no_daemon: Control) -> None:
    done = no_daemon.tool(say="get_server_list\n")

    assert done.returncode == 1
    assert "Cannot find MPS control daemon process" in done.stderr


def test_commands(control: Control) -> None:
    assert control.ask("get_default_active_thread_percentage") == "100.0"
    assert control.ask("set_default_active_thread_percentage 40") == "40.0"
    assert control.ask("get_default_active_thread_percentage") == "40.0"
    control.ask("set_default_device_pinned_mem_limit 0 4G")
    assert control.ask("get_default_device_pinned_mem_limit 0") == "4G"


BAD_COMMANDS = [
    "set_default_active_thread_percentage 0",
    "set_default_active_thread_percentage 101",
    "set_default_active_thread_percentage half",
    "set_default_device_pinned_mem_limit 9 4G",
    "set_default_device_pinned_mem_limit 0 lots",
    "get_coffee",
    "get_client_list 1",
    "set_active_thread_percentage 1 50",
    "shutdown_server 1 -f",
    "start_server -uid root",
    "quit -t soon",
]


def test_bad_commands_change_nothing(control: Control) -> None:
    for command in BAD_COMMANDS:
        done = control.tool(say=command)

        assert done.returncode == 1, command
        assert done.stderr.count("\n") == 1, command
        assert control.ask("get_default_active_thread_percentage") == "100.0", command


def test_quit_ends_the_daemon(control: Control) -> None:
    control.ask("quit")

    assert control.daemon
    assert control.daemon.wait(PATIENCE_S) == 0
    assert control.tool(say="get_server_list").returncode == 1


def test_a_background_daemon_is_there_when_the_tool_returns(no_daemon: Control) -> None:
    assert no_daemon.tool("-d").returncode == 0
    try:
        assert no_daemon.tool("-d").returncode == 1  # a second one for the same directory
        assert no_daemon.ask("get_default_active_thread_percentage") == "100.0"
    finally:
        no_daemon.ask("quit")


def test_a_daemon_without_room_for_its_log_serves_all_the_same(no_daemon: Control) -> None:
    with open("/dev/full", "wb") as full:
        no_daemon.start(stdout=full)
    try:
        assert no_daemon.ask("get_default_active_thread_percentage") == "100.0"
    finally:
        no_daemon.stop()


def test_options(no_daemon: Control) -> None:
    assert no_daemon.tool("-v").stdout.startswith("CUDA MPS Control binary version: ")
    assert "-multiuser-server" in no_daemon.tool("-h").stdout
    assert no_daemon.tool("-x").returncode == 2


def test_the_daemons_process_id_is_in_its_file(control: Control) -> None:
    assert control.daemon
    written = (control.directory / "pipe/nvidia-cuda-mps-control.pid").read_text()

    assert int(written) == control.daemon.pid


def test_a_killed_daemon_does_not_hinder_the_next(control: Control) -> None:
    assert control.daemon
    control.daemon.kill()
    control.daemon.wait()

    assert said_in(control.machine, MEMORY, control.env())["mps"] == 0
    control.start()

    assert said_in(control.machine, MEMORY, control.env())["mps"] == 1


def test_a_path_longer_than_socket_names_can_be(machine: Machine, tmp_path: Path) -> None:
    deep = Control(machine, tmp_path / ("d" * 60) / ("e" * 60))

    with deep.running():
        assert said_in(machine, MEMORY, deep.env())["mps"] == 1


def test_the_daemons_environment_sets_its_defaults(no_daemon: Control) -> None:
    variables = {
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "35",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G",
    }
    with no_daemon.running(**variables):
        assert no_daemon.ask("get_default_active_thread_percentage") == "35.0"
        assert no_daemon.ask("get_default_device_pinned_mem_limit 0") == "1G"
        assert said_in(no_daemon.machine, MEMORY, no_daemon.env())["pieces"] == 16


MEMORY = """
open_context()
pieces, refusal = allocate_until_refused(64 << 20)
mps = check(cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0))
say(pieces=len(pieces), refusal=refusal, mps=mps)
"""


def test_a_clients_memory_ends_at_its_pinned_limit(control: Control) -> None:
    env = control.env(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1024M")

    assert said_in(control.machine, MEMORY, env) == {
        "pieces": 16,
        "refusal": 2,
        "mps": 1,
    }


def test_the_daemons_limit_holds_where_it_is_lower(control: Control) -> None:
    control.ask("set_default_device_pinned_mem_limit 0 512M")
    env = control.env(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1024M")

    assert said_in(control.machine, MEMORY, env)["pieces"] == 8


def test_without_a_daemon_the_variables_mean_nothing(no_daemon: Control) -> None:
    env = no_daemon.env(CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1024M")

    said = said_in(no_daemon.machine, MEMORY, env)

    assert said["mps"] == 0
    assert said["pieces"] > 1000


@pytest.mark.virtual
def test_a_quarter_of_the_threads_takes_four_times_as_long(control: Control) -> None:
    code = """
open_context()
spinner = Spinner(1_000_000)
start, end = check(cuda.cuEventCreate(0)), check(cuda.cuEventCreate(0))
check(cuda.cuEventRecord(start, spinner.stream))
for _ in range(300): spinner.launch()
check(cuda.cuEventRecord(end, spinner.stream))
spinner.wait()
print(check(cuda.cuEventElapsedTime(start, end)))
"""
    whole_ms, quarter_ms = (
        float(run(control.machine, code, control.env(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=percentage)))
        for percentage in ("100", "25")
    )

    assert quarter_ms / whole_ms == pytest.approx(4, rel=0.001)


@pytest.mark.virtual
def test_clients_run_side_by_side_each_at_its_percentage(control: Control) -> None:
    env = tuple(control.env(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=p) for p in ("50", "25"))

    half, quarter, both = shares(control.machine, busy(2_000_000), busy(2_000_000), env=env)

    assert half == pytest.approx(0.5, abs=0.01)
    assert quarter == pytest.approx(0.25, abs=0.01)
    assert both == pytest.approx(1.0, abs=0.01)


@pytest.mark.virtual
def test_percentages_above_the_whole_are_scaled_down(control: Control) -> None:
    parts = shares(
        control.machine, busy(2_000_000), busy(2_000_000), env=(control.env(), control.env())
    )

    assert parts[0] == pytest.approx(0.5, abs=0.01)
    assert parts[1] == pytest.approx(0.5, abs=0.01)


@pytest.mark.virtual
def test_the_daemons_default_caps_what_a_client_asks(control: Control) -> None:
    control.ask("set_default_active_thread_percentage 30")
    env = control.env(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="80")

    share, _ = shares(control.machine, busy(2_000_000), env=(env,))

    assert share == pytest.approx(0.3, abs=0.01)
