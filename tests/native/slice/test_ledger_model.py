"""The C ledger held equal to a few lines of Python, over random lives of processes.

Processes are slots whose ``is_held`` is answered by the model. One that dies in the middle of an
operation is made by undoing its commit: the total has moved and its own word has not.
"""

import mmap
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from libvgpu._native import ffi, lib
from support import IS_LONG

DEVICES = 2
SLOTS = 6
ENOMEM = 12
#: How many operations a slot has had: the total has that in two parts, and then begins again.
NEAR_CARRIES = (0, (1 << 13) - 4, (1 << 34) - 4)

devices = st.integers(0, DEVICES - 1)
sizes = st.one_of(st.integers(0, 40), st.just(lib.LEDGER_MAX_BYTES))
limits = st.integers(0, 60)


class LedgerMachine(RuleBasedStateMachine):
    """``held`` is what each slot's word should say, its dead user's bytes included."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = [
            mmap.mmap(-1, size)
            for size in (lib.usage_file_bytes(DEVICES), lib.limits_file_bytes(DEVICES))
        ]
        self.usage, self.limits_file = (
            ffi.from_buffer("unsigned char[]", area, require_writable=True) for area in self.memory
        )
        lib.usage_format(self.usage, DEVICES, b"model")
        lib.limits_format(self.limits_file, DEVICES)
        self.callback = ffi.callback("int(void *, uint32_t)", lambda _, slot: slot in self.living)
        self.ledgers = [
            ffi.new(
                "struct ledger *",
                {
                    "usage": self.usage,
                    "limits": self.limits_file,
                    "device": device,
                    "is_held": self.callback,
                },
            )
            for device in range(DEVICES)
        ]
        self.living: set[int] = set()
        self.held = [[0] * SLOTS for _ in range(DEVICES)]
        self.limit = [0] * DEVICES

    @initialize(count=st.sampled_from(NEAR_CARRIES))
    def begin(self, count: int) -> None:
        for device in range(DEVICES):
            self.change_limit(device, 50, 0)
            for slot in range(SLOTS):
                self.word(device, slot).count = count
        self.claim()
        self.claim()

    # ---- what C does and what it should come to ----

    def word(self, device: int, slot: int) -> Any:
        return lib.usage_slot_device(self.usage, slot, device)

    def reserve(self, device: int, slot: int, size: int) -> bool:
        """Reserves in both; returns whether it was granted."""
        held = self.held[device]
        dead = [other for other in range(SLOTS) if other not in self.living and held[other]]
        while size <= lib.LEDGER_MAX_BYTES and sum(held) + size > self.limit[device] and dead:
            held[dead.pop(0)] = 0  # a refusal gives back one dead user's bytes and tries again
        refusal = ffi.new("struct ledger_refusal *")
        result = lib.ledger_reserve(self.ledgers[device], slot, size, refusal)
        fits = sum(held) + size <= self.limit[device]
        assert result == (0 if fits else -ENOMEM)
        if fits:
            held[slot] += size
        else:
            assert refusal.used_bytes == sum(held)
            assert refusal.limit_bytes == self.limit[device]
        return fits

    def someone(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.living)), label="slot")

    # ---- rules ----

    @rule(device=devices, limit=limits, beside=st.integers(0, 20))
    def change_limit(self, device: int, limit: int, beside: int) -> None:
        head = ffi.new("struct vgpu_limits_copy *", {"device_count": DEVICES})
        rows = ffi.new("struct vgpu_device_limit[]", DEVICES)
        self.limit[device] = max(0, limit - beside)
        for each in range(DEVICES):
            rows[each].memory_limit_bytes = self.limit[each]
        rows[device].memory_limit_bytes, rows[device].unaccounted_bytes = limit, beside
        assert lib.limits_publish(self.limits_file, head, rows) == 0

    @precondition(lambda self: len(self.living) < SLOTS)
    @rule()
    def claim(self) -> None:
        """As slot.c does: give back what the dead user left, even, odd."""
        slot = next(slot for slot in range(SLOTS) if slot not in self.living)
        row = lib.usage_slot(self.usage, slot)
        for device in range(DEVICES):
            if row.gen % 2:
                lib.ledger_reap(self.ledgers[device], slot, row.gen)
            self.held[device][slot] = 0
        row.gen += 1 + row.gen % 2
        header = ffi.cast("struct vgpu_usage_header *", self.usage)
        header.hi_slot = max(header.hi_slot, slot + 1)
        self.living.add(slot)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices, size=sizes)
    def ask(self, data: st.DataObject, device: int, size: int) -> None:
        self.reserve(device, self.someone(data), size)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices)
    def ask_for_the_last_byte(self, data: st.DataObject, device: int) -> None:
        slot = self.someone(data)
        living = sum(self.held[device][each] for each in self.living)
        if living <= self.limit[device]:
            assert self.reserve(device, slot, self.limit[device] - living)
            assert not self.reserve(device, slot, 1)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices)
    def ask_for_more_than_there_can_be(self, data: st.DataObject, device: int) -> None:
        assert not self.reserve(device, self.someone(data), lib.LEDGER_MAX_BYTES + 1)

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices)
    def release(self, data: st.DataObject, device: int) -> None:
        slot = self.someone(data)
        size = data.draw(st.integers(0, self.held[device][slot]), label="bytes")
        lib.ledger_release(self.ledgers[device], slot, size)
        self.held[device][slot] -= size

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices, size=st.integers(0, 40))
    def force(self, data: st.DataObject, device: int, size: int) -> None:
        slot = self.someone(data)
        lib.ledger_force(self.ledgers[device], slot, size)
        self.held[device][slot] += size

    @rule(device=devices)
    def sweep(self, device: int) -> None:
        lib.ledger_sweep(self.ledgers[device])
        for slot in set(range(SLOTS)) - self.living:
            self.held[device][slot] = 0

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.living.remove(self.someone(data))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), device=devices, grows=st.booleans())
    def die_in_the_middle(self, data: st.DataObject, device: int, grows: bool) -> None:
        slot = self.someone(data)
        lib.ledger_force(self.ledgers[device], slot, 0)  # commits what others left in flight
        word = self.word(device, slot)
        before = word.bytes, word.count
        if not grows:
            size = data.draw(st.integers(0, self.held[device][slot]), label="bytes")
            lib.ledger_release(self.ledgers[device], slot, size)
            self.held[device][slot] -= size
        elif not self.reserve(device, slot, data.draw(st.integers(0, 40), label="bytes")):
            return
        word.bytes, word.count = before
        self.living.remove(slot)

    @invariant()
    def both_agree(self) -> None:
        for device in range(DEVICES):
            ledger = self.ledgers[device]
            assert lib.ledger_limit_bytes(ledger) == self.limit[device]
            assert lib.ledger_used_bytes(ledger) == sum(self.held[device])

    def teardown(self) -> None:
        """Whatever happened, a newcomer gets all that the living do not hold."""
        for device in range(DEVICES):
            self.limit[device] = 0
            self.change_limit(device, 10_000, 0)
            if self.living:
                slot = min(self.living)
                living = sum(self.held[device][each] for each in self.living)
                assert self.reserve(device, slot, 10_000 - living)
                assert not self.reserve(device, slot, 1)
                for each in range(SLOTS):
                    assert self.word(device, each).bytes == self.held[device][each]


LedgerMachine.TestCase.settings = settings(
    max_examples=3000 if IS_LONG else 150,
    stateful_step_count=50 if IS_LONG else 30,
    suppress_health_check=list(HealthCheck),
)
test_the_ledger_does_what_the_model_says = pytest.mark.timeout(600)(LedgerMachine.TestCase)
