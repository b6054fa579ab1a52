"""Semaphores of other interfaces on the simulated GPU: an eventfd stands for one."""

from pathlib import Path

from libvgpu.sim import Machine
from support.sim.programs import said_in
from support.sim.sharing import Program, ending, hand_over

SEMAPHORES = """
KINDS = cuda.CUexternalSemaphoreHandleType
OPAQUE = KINDS.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
def bring(descriptor, kind=OPAQUE, flags=0):
    made = cuda.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    made.type, made.handle.fd, made.flags = kind, descriptor, flags
    return cuda.cuImportExternalSemaphore(made)
def signal(stream, *all):
    nothing = [cuda.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()] * len(all)
    return code(cuda.cuSignalExternalSemaphoresAsync(list(all), nothing, len(all), stream))
def wait(stream, *all):
    nothing = [cuda.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()] * len(all)
    return code(cuda.cuWaitExternalSemaphoresAsync(list(all), nothing, len(all), stream))
def done(semaphore): return code(cuda.cuDestroyExternalSemaphore(semaphore))
def is_waiting(stream): return code(cuda.cuStreamQuery(stream)) == NOT_READY
def end(stream): return code(cuda.cuStreamSynchronize(stream))
one = two = None
def streams():
    global one, two
    one, two = (check(cuda.cuStreamCreate(1)) for _ in range(2))
    return 0
"""


def test_a_stream_waits_for_a_signal_of_another_stream(machine: Machine) -> None:
    code = """
open_context()
streams()
semaphores = [check(bring(os.eventfd(0))) for _ in range(2)]
said = [wait(one, *semaphores), is_waiting(one)]
said += [signal(two, semaphores[0]), end(two), is_waiting(one)]
said += [signal(two, semaphores[1]), end(one)]
said += [wait(one, semaphores[0]), is_waiting(one)]  # a signal ends one wait
say(said=[*said, signal(two, semaphores[0]), *map(done, semaphores), end(one)])
"""
    assert said_in(machine, SEMAPHORES + code) == {
        "said": [0, True, 0, 0, True, 0, 0, 0, True, 0, 0, 0, 0]
    }


def test_a_stream_waits_for_another_process(machine: Machine, tmp_path: Path) -> None:
    with ending(Program(machine, SEMAPHORES), Program(machine, SEMAPHORES)) as (waiter, other):
        for program in (waiter, other):
            program.ask("streams()")
        waiter.ask("put('event', os.eventfd(0))")
        hand_over(waiter, other, "event", tmp_path / "socket")
        waiter.ask("put('semaphore', check(bring(os.dup(event))))")
        other.ask("put('semaphore', check(bring(given)))")

        assert waiter.ask("[wait(one, semaphore), is_waiting(one)]") == [0, True]
        assert other.ask("[signal(one, semaphore), end(one)]") == [0, 0]
        assert waiter.ask("end(one)") == 0
        assert waiter.ask("[wait(one, semaphore), os.eventfd_write(event, 1), end(one)]") == [
            0,
            None,
            0,
        ]


def test_what_is_no_semaphore_is_refused_and_left_alone(machine: Machine) -> None:
    code = """
open_context()
streams()
plain, event = os.memfd_create("plain"), os.eventfd(0)
refused = [code(bring(plain)), code(bring(event, flags=1)),
           code(bring(event, KINDS.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC))]
os.fstat(plain), os.fstat(event)
semaphore = check(bring(event))
check(cuda.cuStreamBeginCapture(one, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
captured = wait(one, semaphore)
cuda.cuStreamEndCapture(one)
say(refused=refused, captured=captured > 0, done=done(semaphore),
    wrong=[INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED])
"""
    said = said_in(machine, SEMAPHORES + code)

    assert said["refused"] == said["wrong"]
    assert (said["captured"], said["done"]) == (True, 0)


def test_a_context_ends_though_a_stream_waits(machine: Machine) -> None:
    code = """
context = check(cuda.cuCtxCreate(None, 0, 0))
streams()
said = wait(one, check(bring(os.eventfd(0))))
say(said=said, ended=code(cuda.cuCtxDestroy(context)))
"""
    assert said_in(machine, "check(cuda.cuInit(0))\n" + SEMAPHORES + code) == {
        "said": 0,
        "ended": 0,
    }
