"""The shim's own part of the books of compute in `usage`."""

from collections.abc import Callable

from libvgpu._native import ffi, lib
from libvgpu.sim import Machine
from support.lines import expect
from support.shim.slices import Slice
from support.sim.programs import PRELUDE

MIB = 1 << 20

HOLD = """
open_context()
check(cuda.cuMemAlloc(1 << 20))
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_place_that_changes_hands_starts_with_clean_books(
    machine: Machine, slice_of: Callable[..., Slice]
) -> None:
    # GIVEN a slot whose last process left figures in every field behind the ledger's word
    part = slice_of(machine, memory_bytes=64 * MIB)
    path = part.directory / "usage"
    image = bytearray(path.read_bytes())
    counters = lib.usage_slot_device(ffi.from_buffer("unsigned char[]", image), 0, 0)
    at = ffi.offsetof("struct vgpu_usage_slot_device", "delay_counts")
    raw = ffi.buffer(counters)
    raw[at:] = b"\x03" * (len(raw) - at)
    path.write_bytes(image)
    assert part.usage().processes == ()

    # WHEN another one takes it
    process = part.start(PRELUDE + HOLD)
    expect(process, "ready")

    # THEN none of it is its own
    (seen,) = part.usage().processes
    own = seen.devices[0]
    assert (seen.slot, own.used_bytes, own.peak_bytes) == (0, MIB, MIB)
    assert (own.windows, own.launches, own.gpu_time_ns, own.held_ns) == (0, 0, 0, 0)
    assert (own.delay_p99_ns, own.is_estimated, own.last_refusal) == (None, False, None)
