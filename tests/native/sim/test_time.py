"""Time on the simulated GPU: queues, events, sharing between processes."""

import pytest

from libvgpu.sim import Machine
from support.lines import next_line
from support.sim.programs import busy, finish, said_in, shares, start

pytestmark = pytest.mark.virtual

QUEUE_DEPTH = 1024


@pytest.mark.parametrize(("kernel_ns", "count"), [(2_000_000, 200), (50_000, 5000)])
def test_queued_kernels_take_their_time(machine: Machine, kernel_ns: int, count: int) -> None:
    code = f"""
open_context()
spinner = Spinner({kernel_ns})
start, end = check(cuda.cuEventCreate(0)), check(cuda.cuEventCreate(0))
check(cuda.cuEventRecord(start, spinner.stream))
begun = time.monotonic()
for _ in range({count}):
    spinner.launch()
check(cuda.cuEventRecord(end, spinner.stream))
spinner.wait()
wall = time.monotonic() - begun
say(wall=wall, event=check(cuda.cuEventElapsedTime(start, end)) / 1e3, cpu=time.process_time())
"""
    said = said_in(machine, code)
    (books,) = machine.books()
    wanted = kernel_ns * count / 1e9

    assert said["wall"] == pytest.approx(wanted, rel=0.03)
    assert said["event"] == pytest.approx(wanted, rel=0.01)
    assert books.busy_ns == kernel_ns * count
    assert books.clients[0].launches == count


def test_a_full_queue_blocks_the_launch_without_burning_the_processor(machine: Machine) -> None:
    code = f"""
open_context()
spinner = Spinner(2_000_000)
def launch_all(count):
    begun = time.monotonic()
    for _ in range(count):
        spinner.launch()
    return time.monotonic() - begun
free = launch_all({QUEUE_DEPTH})
cpu = time.process_time()
blocked = launch_all(200)
say(free=free, blocked=blocked, cpu=time.process_time() - cpu)
"""
    said = said_in(machine, code)

    assert said["free"] < 0.2
    assert said["blocked"] == pytest.approx(200 * 0.002, rel=0.1)
    assert said["cpu"] < said["blocked"] / 2


def test_a_long_wait_sleeps(machine: Machine) -> None:
    code = """
open_context()
spinner = Spinner(500_000_000)
spinner.launch(); spinner.wait()
cpu = time.process_time()
spinner.launch(); spinner.wait()
say(cpu=time.process_time() - cpu)
"""
    assert said_in(machine, code)["cpu"] < 0.05


def test_two_processes_get_half_each_minus_the_switches(machine: Machine) -> None:
    one, other, both = shares(machine, busy(2_000_000), busy(500_000))

    assert one == pytest.approx(0.5, abs=0.01)
    assert other == pytest.approx(0.5, abs=0.01)
    assert 0.97 < both < 1.0


def test_a_process_that_waits_for_each_kernel_gets_its_turns_only(machine: Machine) -> None:
    queued, waiting, both = shares(machine, busy(2_000_000), busy(1_000_000, "spinner.wait()"))

    assert waiting == pytest.approx(1 / 3, abs=0.01)  # 1 ms of its own, then 2 ms of the other
    assert queued == pytest.approx(2 / 3, abs=0.01)
    assert both > 0.95


def test_one_process_that_keeps_its_queue_full_has_all(machine: Machine) -> None:
    share, whole = shares(machine, busy(5_000_000))

    assert share == pytest.approx(1.0, abs=0.001)
    assert whole <= 1.0


def test_nvml_utilisation_follows_the_books(machine: Machine) -> None:
    viewer = """
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
time.sleep(0.5)
say(gpu=pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
    power=pynvml.nvmlDeviceGetPowerUsage(handle), own=OWN)
"""
    samples = "{s.pid: s.smUtil for s in pynvml.nvmlDeviceGetProcessUtilization(handle, 0)}"
    idle = said_in(machine, viewer.replace("OWN", "None"))
    program = start(machine, busy(5_000_000))
    next_line(program)
    try:
        said = said_in(machine, viewer.replace("OWN", samples))
    finally:
        finish(program)

    assert idle["gpu"] == 0
    assert said["gpu"] == 100
    assert said["own"] == {str(program.pid): 100}
    assert said["power"] > idle["power"]


def test_events_say_when_they_are_not_ready(machine: Machine) -> None:
    code = """
open_context()
spinner = Spinner(100_000_000)
event = check(cuda.cuEventCreate(0))
never = int(cuda.cuEventQuery(event)[0])
spinner.launch()
check(cuda.cuEventRecord(event, spinner.stream))
early = [int(cuda.cuEventQuery(event)[0]), int(cuda.cuStreamQuery(spinner.stream)[0])]
check(cuda.cuEventSynchronize(event))
say(never=never, early=early, late=int(cuda.cuEventQuery(event)[0]))
"""
    assert said_in(machine, code) == {"never": 0, "early": [600, 600], "late": 0}


def test_host_functions_run_after_the_work_in_front_of_them(machine: Machine) -> None:
    code = """
open_context()
spinner = Spinner(50_000_000)
seen = []
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def note(argument): seen.append(time.monotonic_ns())
begun = time.monotonic_ns()
spinner.launch()
pointer = ctypes.c_void_p(ctypes.cast(note, ctypes.c_void_p).value)
function = cuda.CUhostFn(_ptr=ctypes.addressof(pointer))
check(cuda.cuLaunchHostFunc(spinner.stream, function, 0))
spinner.wait()
say(calls=len(seen), after=seen[0] - begun)
"""
    said = said_in(machine, code)

    assert said["calls"] == 1
    assert 50_000_000 <= said["after"] < 100_000_000
