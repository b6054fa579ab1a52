"""Faults on request, as a program on the simulated machine meets them."""

import json
from collections.abc import Iterator

import pytest

from libvgpu._native import ffi, lib
from libvgpu.sim import Machine, faults
from support.lines import Listening
from support.sim.programs import start
from support.waiting import PATIENCE_S

OUT_OF_MEMORY, UNAVAILABLE, ECC_UNCORRECTABLE, ILLEGAL_ADDRESS = 2, 46, 214, 700
DELAY_NS = 20_000_000

# Does what it reads, and says the CUresult and how long the call took.
SERVANT = """
open_context()
def fresh():
    result, context = cuda.cuCtxCreate(*([None] if NEW_CREATE else []), 0, 0)
    if not result: check(cuda.cuCtxDestroy(context))
    return result
NEW_CREATE = "paramsArray" in (cuda.cuCtxCreate.__doc__ or "") or "ctxCreateParams" in (
    cuda.cuCtxCreate.__doc__ or "")
DEEDS = {
    "synchronize": lambda: cuda.cuCtxSynchronize()[0],
    "allocate": lambda: cuda.cuMemAlloc(4096)[0],
    "count": lambda: cuda.cuDeviceGetCount()[0],
    "fresh": fresh,
}
for line in sys.stdin:
    begun = time.monotonic_ns()
    result = DEEDS[line.strip()]()
    say(result=int(result), took_ns=time.monotonic_ns() - begun)
"""


class Servant(Listening):
    def __init__(self, machine: Machine) -> None:
        super().__init__(start(machine, SERVANT))
        self.do("count")

    def said(self, deed: str) -> dict[str, int]:
        self.tell(deed)
        said: dict[str, int] = json.loads(self.hear())
        return said

    def do(self, deed: str) -> int:
        return self.said(deed)["result"]


@pytest.fixture
def servant(machine: Machine) -> Iterator[Servant]:
    made = Servant(machine)
    yield made
    made.process.kill()
    made.process.communicate(timeout=PATIENCE_S)


def events(machine: Machine) -> list[tuple[int, int]]:
    """Returns type and data of every event of GPU 0."""
    event = ffi.new("struct sim_event *")
    found = []
    for number in range(1, lib.sim_machine_last_event(machine._native, 0) + 1):
        assert lib.sim_machine_read_event(machine._native, 0, number, event) == 0
        found.append((event.type, event.data))
    return found


def test_an_uncorrectable_error_breaks_the_contexts_there_are(
    machine: Machine, servant: Servant
) -> None:
    faults.inject_xid(machine, 0, 48)

    assert servant.do("synchronize") == ECC_UNCORRECTABLE
    assert machine.ecc_errors(0) == (0, 1)
    assert (lib.SIM_EVENT_XID, 48) in events(machine)
    faults.clear(machine)
    assert servant.do("synchronize") == 0


def test_contexts_begun_later_are_whole(machine: Machine) -> None:
    faults.inject_xid(machine, 0, 94)
    later = Servant(machine)
    try:
        assert later.do("synchronize") == 0
    finally:
        later.process.kill()
        later.process.communicate(timeout=PATIENCE_S)


def test_other_xids_are_events_only(machine: Machine, servant: Servant) -> None:
    faults.inject_xid(machine, 0, 31)

    assert servant.do("synchronize") == 0
    assert machine.ecc_errors(0) == (0, 0)
    assert events(machine) == [(lib.SIM_EVENT_XID, 31)]


def test_a_lost_gpu_answers_nobody_until_it_is_back(machine: Machine, servant: Servant) -> None:
    faults.inject_lost(machine, 0)

    assert servant.do("synchronize") == UNAVAILABLE
    assert servant.do("fresh") == UNAVAILABLE
    assert events(machine) == [(lib.SIM_EVENT_XID, 79)]

    faults.recover(machine, 0)
    assert servant.do("synchronize") == UNAVAILABLE  # what it held is gone
    assert servant.do("fresh") == 0


def test_so_many_allocations_fail(machine: Machine, servant: Servant) -> None:
    faults.fail_allocations(machine, 0, 2)

    assert [servant.do("allocate") for _ in range(3)] == [OUT_OF_MEMORY, OUT_OF_MEMORY, 0]


def test_so_many_calls_answer_a_code(machine: Machine, servant: Servant) -> None:
    faults.fail_calls(machine, ILLEGAL_ADDRESS, 2)

    assert [servant.do("count") for _ in range(3)] == [ILLEGAL_ADDRESS, ILLEGAL_ADDRESS, 0]


def test_calls_take_longer(machine: Machine, servant: Servant) -> None:
    faults.delay_calls(machine, DELAY_NS)
    assert servant.said("count")["took_ns"] >= DELAY_NS

    faults.delay_calls(machine, 0)
    assert machine.call_faults().delay_ns == 0


def test_ecc_errors_are_counted_and_told(machine: Machine) -> None:
    machine.raise_event(0, "ecc_single", 0)
    machine.raise_event(0, "ecc_double", 0)
    machine.raise_event(0, "ecc_single", 0)

    assert machine.ecc_errors(0) == (2, 1)
    assert [kind for kind, _ in events(machine)] == [
        lib.SIM_EVENT_ECC_SINGLE,
        lib.SIM_EVENT_ECC_DOUBLE,
        lib.SIM_EVENT_ECC_SINGLE,
    ]
