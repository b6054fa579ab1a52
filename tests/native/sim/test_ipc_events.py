"""Events of the simulated GPU that two processes have."""

import pytest

from libvgpu.sim import Machine
from support.sim.sharing import pair

pytestmark = pytest.mark.virtual

NOT_READY = 600
FLAGS = "cuda.CUevent_flags.CU_EVENT_INTERPROCESS | cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING"
MAKE = f"put('event', check(cuda.cuEventCreate({FLAGS})))"
HANDLE = "hexadecimal(check(cuda.cuIpcGetEventHandle(event)))"
OPEN = (
    "[put('opaque', cuda.CUipcEventHandle()), fill(opaque, '{}'),"
    " put('event', check(cuda.cuIpcOpenEventHandle(opaque)))][0]"
)
SPINNER = "put('spinner', Spinner({}))"
LAUNCH = "[spinner.launch(), check(cuda.cuEventRecord(event, spinner.stream))][0]"
QUERY = "int(cuda.cuEventQuery(event)[0])"


def test_one_process_waits_for_the_work_of_another(machine: Machine) -> None:
    with pair(machine) as (maker, opener):
        maker.ask(MAKE)
        maker.ask(SPINNER.format(300_000_000))
        opener.ask(OPEN.format(maker.ask(HANDLE)))
        never = opener.ask(QUERY)
        maker.ask(LAUNCH)

        early = opener.ask(QUERY)
        opener.ask("put('begun', time.monotonic())")
        waited = opener.ask("[check(cuda.cuEventSynchronize(event)), time.monotonic() - begun][1]")

        assert (never, early) == (0, NOT_READY)
        assert 0.2 < waited < 0.4
        assert (opener.ask(QUERY), maker.ask(QUERY)) == (0, 0)


def test_a_stream_waits_for_the_work_of_another_process(machine: Machine) -> None:
    with pair(machine) as (maker, opener):
        maker.ask(MAKE)
        maker.ask(SPINNER.format(200_000_000))
        opener.ask(OPEN.format(maker.ask(HANDLE)))
        opener.ask(SPINNER.format(1_000_000))
        maker.ask(LAUNCH)

        opener.ask("check(cuda.cuStreamWaitEvent(spinner.stream, event, 0))")
        opener.ask("put('begun', time.monotonic())")
        waited = opener.ask("[spinner.launch(), spinner.wait(), time.monotonic() - begun][2]")

        assert 0.1 < waited < 0.4


def test_whoever_opened_it_may_record_it_too(machine: Machine) -> None:
    with pair(machine) as (maker, opener):
        maker.ask(MAKE)
        opener.ask(OPEN.format(maker.ask(HANDLE)))
        opener.ask(SPINNER.format(200_000_000))
        opener.ask(LAUNCH)

        assert maker.ask(QUERY) == NOT_READY
        maker.ask("check(cuda.cuEventSynchronize(event))")
        assert opener.ask(QUERY) == 0


def test_the_work_of_a_killed_process_is_not_waited_for(machine: Machine) -> None:
    with pair(machine) as (maker, opener):
        maker.ask(MAKE)
        maker.ask(SPINNER.format(30_000_000_000))
        opener.ask(OPEN.format(maker.ask(HANDLE)))
        maker.ask(LAUNCH)
        assert opener.ask(QUERY) == NOT_READY

        maker.kill()

        assert opener.ask("int(cuda.cuEventSynchronize(event)[0])") == 0


def test_what_cannot_be_shared_is_refused(machine: Machine) -> None:
    with pair(machine) as (maker, opener):
        timed = "int(cuda.cuEventCreate(cuda.CUevent_flags.CU_EVENT_INTERPROCESS)[0])"
        assert maker.ask(timed) == 1
        maker.ask("put('plain', check(cuda.cuEventCreate(0)))")
        assert maker.ask("int(cuda.cuIpcGetEventHandle(plain)[0])") == 400
        maker.ask(MAKE)
        handle = maker.ask(HANDLE)
        assert maker.ask(OPEN.format(handle)) == {"code": 201}  # in the process that made it
        maker.ask("check(cuda.cuEventDestroy(event))")
        assert opener.ask(OPEN.format(handle)) == {"code": 400}
        assert opener.ask(OPEN.format("00" * 64)) == {"code": 400}
