"""The simulated MPS server: its clients, its death, its users, and compute modes next to it."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.sim import PROFILES, Machine, faults
from support import Compile, open_to_others
from support.ended import printed, run_to_end
from support.lines import next_line, tell
from support.sim.mps_control import Control, is_gone
from support.sim.programs import finish, run, start
from support.waiting import PATIENCE_S, wait_until

NOT_READY, RPC_FAILURE, MAX_CLIENTS = 807, 806, 808
ECC_UNCORRECTABLE = 214
UNAVAILABLE = 46
DEFAULT_MODE, PROHIBITED, EXCLUSIVE_PROCESS = 0, 2, 3
NOBODY = 65534

# Says the CUresult of each step, one a line read.
STEPS = """
def first():
    result = cuda.cuInit(0)[0]
    return result if result else cuda.cuDevicePrimaryCtxRetain(0)[0]
result = first()
if not result:
    check(cuda.cuCtxSetCurrent(check(cuda.cuDevicePrimaryCtxRetain(0))))
print(int(result), flush=True)
for line in sys.stdin:
    print(int(cuda.cuCtxSynchronize()[0]), flush=True)
"""


@pytest.fixture
def control(machine: Machine, tmp_path: Path) -> Iterator[Control]:
    with Control(machine, tmp_path).running() as control:
        yield control


class Stepper:
    """A client that does one step when it is told to."""

    def __init__(self, control: Control, **env: str) -> None:
        self.process = start(control.machine, STEPS, control.env(**env))
        self.first = self._result()

    def step(self) -> int:
        tell(self.process)
        return self._result()

    def end(self) -> None:
        finish(self.process)

    def _result(self) -> int:
        assert self.process.stdout
        return int(self.process.stdout.readline() or "-1")


@contextlib.contextmanager
def client(control: Control, **env: str) -> Iterator[Stepper]:
    stepper = Stepper(control, **env)
    try:
        yield stepper
    finally:
        stepper.process.kill()
        stepper.process.communicate(timeout=PATIENCE_S)


def percentage_of(machine: Machine, pid: int) -> int:
    return next(c.percentage for c in machine.books()[0].clients if c.pid == pid)


def test_the_first_client_brings_a_server_with_a_process_of_its_own(control: Control) -> None:
    assert control.ask("get_server_list") == ""

    with client(control) as one, client(control) as other:
        assert (one.first, other.first) == (0, 0)
        server = control.server()
        assert control.daemon
        assert server not in (control.daemon.pid, one.process.pid, os.getpid())
        assert control.ask(f"get_server_status {server}") == "ACTIVE"
        assert control.client_pids() == [one.process.pid, other.process.pid]


def test_clients_are_listed_until_they_end(control: Control) -> None:
    uuid = control.machine.devices[0].uuid
    with client(control) as one:
        pid = one.process.pid
        assert control.ask("get_device_client_list").split() == [uuid, str(pid)]
        heading, row = control.ask("ps").splitlines()
        assert heading.split() == ["PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND"]
        assert row.split()[:4] == [str(pid), "0", str(control.server()), uuid]
    wait_until(lambda: control.client_pids() == [], "no client is listed")


def test_a_server_is_started_by_hand(control: Control) -> None:
    control.ask(f"start_server -uid {os.getuid()}")

    assert control.ask(f"get_server_status {control.server()}") == "ACTIVE"
    assert control.tool(say=f"start_server -uid {os.getuid()}").returncode == 1


@pytest.mark.parametrize("how", ["kill", "shutdown_server"])
def test_when_the_server_dies_its_clients_fail_and_the_next_has_a_new_one(
    control: Control, how: str
) -> None:
    with client(control) as one:
        assert one.step() == 0
        first = control.server()

        if how == "kill":
            os.kill(first, signal.SIGKILL)
        else:
            control.ask(f"shutdown_server {first} -f")

        wait_until(lambda: one.step() == RPC_FAILURE, "the client's calls fail")
        with client(control) as next_one:
            assert next_one.first == 0
            assert control.server() != first
            assert control.client_pids() == [next_one.process.pid]
            assert one.step() == RPC_FAILURE


def test_after_a_fault_a_server_waits_for_its_clients_and_takes_no_others(control: Control) -> None:
    def status() -> str:
        return control.ask(f"get_server_status {server}")

    first, second = Stepper(control), Stepper(control)
    server = control.server()
    faults.inject_xid(control.machine, 0, 94)
    assert status() == "ACTIVE"  # nobody has met it yet

    assert first.step() == second.step() == ECC_UNCORRECTABLE
    wait_until(lambda: status() == "FAULT", "the server knows")
    late = Stepper(control)
    assert late.first == NOT_READY
    late.end()
    first.end()
    assert status() == "FAULT"
    second.end()
    wait_until(lambda: status() == "ACTIVE", "all have ended")

    after = Stepper(control)
    assert (after.first, after.step()) == (0, 0)
    assert control.server() == server
    after.end()
    log = (control.directory / "log" / "server.log").read_text()
    assert log.count("handling a fatal GPU error") == 2  # each client has met it


def test_a_client_that_slept_through_the_change_of_servers_has_failed(control: Control) -> None:
    with client(control) as sleeper:
        first = control.server()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: is_gone(first), "the server has ended")
        with client(control) as next_one:
            assert next_one.first == 0
            wait_until(lambda: sleeper.step() == RPC_FAILURE, "it has failed")


def test_a_server_told_to_shut_down_serves_its_clients_to_their_end(control: Control) -> None:
    with client(control) as one:
        server = control.server()
        control.ask(f"shutdown_server {server}")

        assert one.step() == 0
        with client(control) as late:
            assert late.first == NOT_READY
        assert not is_gone(server)
        one.end()
    wait_until(lambda: control.ask("get_server_list") == "", "the server has ended")


FORKS = """
open_context()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
os.close(0)
sys.stdout.close()
os._exit(0)
"""


def test_a_child_that_outlives_its_parent_is_no_client(control: Control) -> None:
    parent = start(control.machine, FORKS, control.env())
    try:
        assert parent.stdout and parent.stdin
        child = int(next_line(parent))
        assert parent.wait(PATIENCE_S) == 0

        wait_until(lambda: control.client_pids() == [], "the parent has left")

        assert not is_gone(child)
        parent.stdin.close()
        wait_until(lambda: is_gone(child), "the child has ended")
    finally:
        parent.kill()
        for pipe in (parent.stdin, parent.stdout, parent.stderr):
            assert pipe
            pipe.close()


def test_many_who_say_nothing_hinder_nobody(control: Control) -> None:
    silent = []
    folder = os.open(control.directory / "pipe", os.O_RDONLY)
    try:
        for _ in range(300):
            silent.append(socket.socket(socket.AF_UNIX))
            silent[-1].connect(f"/proc/self/fd/{folder}/control")
        assert client_result(control) == 0
    finally:
        for each in silent:
            each.close()
        os.close(folder)


def test_quit_waits_for_the_clients(control: Control) -> None:
    with client(control) as one:
        tool = subprocess.Popen(
            ["nvidia-cuda-mps-control"],
            env={**control.machine.environment(), **control.env()},
            stdin=subprocess.PIPE,
        )
        assert tool.stdin
        tool.stdin.write(b"quit\n")
        tool.stdin.close()
        wait_until(lambda: client_result(control) == NOT_READY, "no new client is taken")
        assert one.step() == 0
        assert tool.poll() is None
        one.end()
    assert control.daemon
    assert tool.wait(PATIENCE_S) == 0
    assert control.daemon.wait(PATIENCE_S) == 0


def client_result(control: Control) -> int:
    with client(control) as one:
        return one.first


def test_quit_with_a_time_does_not_wait_longer(control: Control) -> None:
    with client(control) as one:
        control.ask("quit -t 0")

        wait_until(lambda: one.step() == RPC_FAILURE, "the client's calls fail")
    assert control.daemon
    assert control.daemon.wait(PATIENCE_S) == 0


def test_clients_outlive_a_killed_daemon_and_the_server_ends_with_the_last(
    control: Control,
) -> None:
    with client(control) as one:
        server = control.server()
        assert control.daemon
        control.daemon.kill()
        control.daemon.wait()

        assert one.step() == 0
        assert not is_gone(server)
        control.start()
        assert client_result(control) == NOT_READY  # the GPU is the old server's
        one.end()
    wait_until(lambda: is_gone(server), "the server has ended")
    assert client_result(control) == 0


def test_defaults_are_for_the_next_server_and_a_servers_own_for_its_next_clients(
    control: Control,
) -> None:
    machine = control.machine
    with client(control) as one:
        server = control.server()
        control.ask("set_default_active_thread_percentage 40")
        with client(control) as other:
            assert percentage_of(machine, other.process.pid) == 100
        assert control.ask(f"set_active_thread_percentage {server} 30") == "30.0"
        assert control.ask(f"get_active_thread_percentage {server}") == "30.0"
        with client(control) as other:
            assert percentage_of(machine, other.process.pid) == 30
        assert percentage_of(machine, one.process.pid) == 100
    control.ask(f"shutdown_server {server} -f")
    with client(control) as one:
        assert percentage_of(machine, one.process.pid) == 40


@pytest.mark.parametrize(("capability", "limit"), [((6, 1), 16), ((7, 5), 48)])
def test_a_server_takes_so_many_clients_as_the_architecture_allows(
    tmp_path: Path, compile_program: Compile, capability: tuple[int, int], limit: int
) -> None:
    program = compile_program("sim_mps_many.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    profile = replace(PROFILES["t4"], compute_capability=capability, context_bytes=0)
    machine = Machine.create([profile], tmp_path / "m")

    with Control(machine, tmp_path).running() as control:
        said = printed(
            program, str(limit + 2), env={**machine.environment(), **control.env()}
        ).split()

    assert said == [str(MAX_CLIENTS), str(MAX_CLIENTS), str(limit)]


# ---- users ---------------------------------------------------------------------------------------


def as_nobody(control: Control) -> int:
    """Returns the CUresult of cuInit and a context in a program of another user."""
    folder = control.directory
    done = run_to_end(
        [folder / "many", "1"],
        env={**control.machine.environment({}), **control.env()},
        user=NOBODY,
        group=NOBODY,
        check=True,
    ).stdout.split()
    return int(done[0]) if len(done) > 1 else 0


@pytest.fixture
def shared_machine(tmp_path: Path, compile_program: Compile) -> Machine:
    """A machine and a program in a folder that every user reaches."""
    if os.geteuid() != 0:
        pytest.skip("only root can be other users")
    program = compile_program("sim_mps_many.c", flags=(f"-L{SIM_LIBRARY_DIR}", "-l:libcuda.so.1"))
    open_to_others(tmp_path)
    (tmp_path / "many").write_bytes(program.read_bytes())
    (tmp_path / "many").chmod(0o755)
    return Machine.create([PROFILES["t4"]], tmp_path / "m")


@pytest.mark.root
def test_another_user_is_refused_while_the_server_has_clients(
    shared_machine: Machine, tmp_path: Path
) -> None:
    with Control(shared_machine, tmp_path).running() as control:
        with client(control) as one:
            assert as_nobody(control) == NOT_READY
            assert one.step() == 0
            one.end()
        wait_until(lambda: control.client_pids() == [], "the client has left")
        first = control.server()

        assert as_nobody(control) == 0

        assert control.server() != first  # a server of that user


@pytest.mark.root
def test_with_multiuser_server_users_share_one(shared_machine: Machine, tmp_path: Path) -> None:
    control = Control(shared_machine, tmp_path, ("-multiuser-server",))
    with control.running(), client(control) as one:
        server = control.server()

        assert as_nobody(control) == 0

        assert control.server() == server
        assert one.step() == 0


# ---- compute modes -------------------------------------------------------------------------------


def plain(machine: Machine, tmp_path: Path) -> Control:
    """No daemon: its clients are processes without MPS."""
    return Control(machine, tmp_path / "without-mps")


def test_prohibited_lets_nobody_in(control: Control, tmp_path: Path) -> None:
    control.machine.set_compute_mode(0, PROHIBITED)

    assert client_result(control) == UNAVAILABLE
    assert client_result(plain(control.machine, tmp_path)) == UNAVAILABLE


def test_exclusive_process_lets_one_process_in_until_it_ends(
    machine: Machine, tmp_path: Path
) -> None:
    alone = plain(machine, tmp_path)
    machine.set_compute_mode(0, EXCLUSIVE_PROCESS)

    with client(alone) as one:
        assert one.first == 0
        assert client_result(alone) == UNAVAILABLE
        machine.set_compute_mode(0, DEFAULT_MODE)
        assert client_result(alone) == 0
        machine.set_compute_mode(0, EXCLUSIVE_PROCESS)
    assert client_result(alone) == 0


def test_all_clients_of_mps_are_one_process_to_exclusive_process(
    control: Control, tmp_path: Path
) -> None:
    control.machine.set_compute_mode(0, EXCLUSIVE_PROCESS)

    with client(control) as one, client(control) as other:
        assert (one.first, other.first) == (0, 0)
        assert client_result(plain(control.machine, tmp_path)) == UNAVAILABLE
    # the server is a process on the GPU, and stays
    assert client_result(plain(control.machine, tmp_path)) == UNAVAILABLE
    control.ask(f"shutdown_server {control.server()} -f")
    assert client_result(plain(control.machine, tmp_path)) == 0


def test_a_process_without_mps_keeps_clients_out(control: Control, tmp_path: Path) -> None:
    control.machine.set_compute_mode(0, EXCLUSIVE_PROCESS)

    with client(plain(control.machine, tmp_path)) as one:
        assert one.first == 0
        assert client_result(control) == UNAVAILABLE


def test_no_server_starts_next_to_a_process_without_mps(
    costly_machine: Machine, tmp_path: Path
) -> None:
    """It gets no context there; the daemon stays, and later it does."""
    costly_machine.set_compute_mode(0, EXCLUSIVE_PROCESS)
    control = Control(costly_machine, tmp_path)

    with control.running():
        with client(plain(costly_machine, tmp_path)) as one:
            assert one.first == 0
            assert control.tool(say=f"start_server -uid {os.getuid()}").returncode == 1
            assert control.ask("get_server_list") == ""
            assert client_result(control) == UNAVAILABLE
        assert client_result(control) == 0


def test_a_client_says_that_it_is_one(control: Control) -> None:
    code = """
open_context()
ATTRIBUTE = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED
print(check(cuda.cuDeviceGetAttribute(ATTRIBUTE, 0)))
"""

    assert run(control.machine, code, control.env()).strip() == "1"
