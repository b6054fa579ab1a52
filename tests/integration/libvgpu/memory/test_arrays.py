"""Arrays under a slice are charged by their true size."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from libvgpu.sim import PROFILES, Machine
from libvgpu.sim.spec import DRIVER_VERSIONS
from support.shim.lacking import without_symbols
from support.shim.slices import SliceOf
from support.shim.walk import assert_exact, walk

MIB = 1 << 20

# Width, height, depth, channels, format and flags; levels where there are any.
FORMS = """
from support.shim.cuda_client import *
from support.shim.cuda_arrays import BYTE, FLOAT, form
HALF = driver.CUarray_format.CU_AD_FORMAT_HALF
LAYERED, CUBE, SPARSE, DEFERRED = 1, 4, 0x40, 0x80
FORMS = {
    "row": (form(100_000), 0),
    "row_of_floats": (form(65_000, NumChannels=4, Format=FLOAT), 0),
    "flat": (form(1000, 1001), 0),
    "flat_of_one_row": (form(1000, 1), 0),
    "flat_of_halves": (form(333, 77, NumChannels=2, Format=HALF), 0),
    "deep": (form(100, 50, 25, Format=FLOAT), 0),
    "layers": (form(128, 60, 7, Flags=LAYERED), 0),
    "layers_of_rows": (form(5000, 0, 9, Flags=LAYERED), 0),
    "cube": (form(100, 100, 6, Flags=CUBE), 0),
    "cubes": (form(60, 60, 18, Flags=CUBE | LAYERED, Format=FLOAT), 0),
    "levels": (form(500, 300, NumChannels=4), 9),
    "more_levels_than_there_are": (form(64, 64), 99),
    "deep_levels": (form(64, 32, 16, Format=FLOAT), 3),
    "layered_levels": (form(256, 100, 5, Flags=LAYERED), 4),
}
def make(form, levels):
    return driver.cuMipmappedArrayCreate(form, levels) if levels else driver.cuArray3DCreate(form)
def end(array, levels):
    return check((driver.cuMipmappedArrayDestroy if levels else driver.cuArrayDestroy)(array))
def free(): return check(driver.cuMemGetInfo())[0]
def fill(left_bytes): return check(driver.cuMemAlloc(free() - left_bytes))
open_context()
"""

EACH_FORM = """
made = []
for name, (shape, levels) in FORMS.items():
    made.append((check(make(shape, levels)), levels)); look(name)
for array, levels in made:
    end(array, levels)
look("none")
"""

TO_THE_BYTE = """
import ctypes
for name, (shape, levels) in FORMS.items():
    before = free()
    end(check(make(shape, levels)), levels); array = check(make(shape, levels))
    bytes = before - free()
    end(array, levels)
    ballast = fill(bytes - 1)
    refused = int(make(shape, levels)[0]), free()
    check(driver.cuMemFree(ballast)); ballast = fill(bytes)
    array = check(make(shape, levels)); left = free()
    end(array, levels); check(driver.cuMemFree(ballast))
    assert bytes > 0 and refused == (2, bytes - 512) and left == 0, (name, bytes, refused, left)
assert free() == before
"""


def test_an_array_of_any_form_is_charged_what_it_takes(machine: Machine, slice_of: SliceOf) -> None:
    looks, _ = walk(slice_of(machine, memory_bytes=64 * MIB), FORMS + EACH_FORM)

    assert_exact(looks)
    sizes = [look.charged_bytes for look in looks.values()]
    assert sizes[:-1] == sorted(set(sizes[:-1])), "every form takes something"
    assert sizes[-1] == 0


def test_an_array_that_fits_exactly_is_made_and_one_byte_less_refused(
    machine: Machine, slice_of: SliceOf
) -> None:
    slice_of(machine, memory_bytes=64 * MIB).run(FORMS + TO_THE_BYTE)


def test_arrays_end_with_their_context(costly_machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(costly_machine, memory_bytes=2048 * MIB)
    code = """
look("primary")
created = check(create_context())
array = check(make(*FORMS["flat"])); check(make(*FORMS["levels"])); look("both")
check(driver.cuCtxDestroy(created)); look("created_ended")
late = int(driver.cuArrayDestroy(array)[0])
check(make(*FORMS["deep"])); look("again")
check(driver.cuDevicePrimaryCtxReset(0)); look("reset")
print(late)
"""

    looks, (late,) = walk(part, FORMS + code)

    assert_exact(looks)
    assert looks["created_ended"] == looks["primary"]
    assert looks["reset"].charged_bytes == 0
    assert late != "0"  # the driver's own answer


def test_arrays_without_memory_cost_nothing(machine: Machine, slice_of: SliceOf) -> None:
    part = slice_of(machine, memory_bytes=MIB)
    code = """
array = check(make(form(10_000, 10_000, Flags=DEFERRED), 0)); look("deferred")
mipmap = check(make(form(10_000, 10_000, Flags=DEFERRED), 5)); look("deferred_levels")
sparse = check(make(form(4096, 4096, Flags=SPARSE), 0)); look("sparse")
end(array, 0); end(mipmap, 5); end(sparse, 0); look("ended")
"""

    looks, _ = walk(part, FORMS + code)

    assert_exact(looks)
    assert {look.charged_bytes for look in looks.values()} == {0}


def test_what_cannot_be_an_array_is_the_drivers_business(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=64 * MIB)
    code = """
bad = [form(0), form(10, NumChannels=3), form(10, 0, 10), form(10, 10, 5, Flags=CUBE),
       form(10, Flags=1 << 20), form(10, Format=driver.CUarray_format.CU_AD_FORMAT_NV12)]
print(*(int(make(shape, levels)[0]) for shape in bad for levels in (0, 2)))
print(int(driver.cuArrayDestroy(0)[0]), int(driver.cuMipmappedArrayDestroy(0)[0]))
level = check(driver.cuMipmappedArrayGetLevel(check(make(form(64, 64), 3)), 1))
print(int(driver.cuArrayDestroy(level)[0]))
"""

    with_shim, without = part.run(FORMS + code), part.run(FORMS + code, shim=False)

    assert with_shim == without
    assert "0" not in with_shim


def test_an_array_in_a_capture_is_refused_by_the_driver_and_spoils_nothing_else(
    machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(machine, memory_bytes=64 * MIB)
    code = """
modes = driver.CUstreamCaptureMode
stream = check(driver.cuStreamCreate(0))
for mode in (modes.CU_STREAM_CAPTURE_MODE_GLOBAL, modes.CU_STREAM_CAPTURE_MODE_RELAXED):
    check(driver.cuStreamBeginCapture(stream, mode))
    print(int(make(form(1000, 1000), 0)[0]))
    print(int(driver.cuStreamEndCapture(stream)[0]))
look("ended")
"""

    looks, with_shim = walk(part, FORMS + code)

    without = part.run(f"{FORMS}\ndef look(name): pass\n{code}", shim=False)
    assert with_shim == without
    assert_exact(looks)


def test_an_older_driver_is_asked_the_same(tmp_path: Path, slice_of: SliceOf) -> None:
    profile = replace(PROFILES["h100-80g"], context_bytes=0)
    older = Machine.create([profile], tmp_path / "older", DRIVER_VERSIONS["12.4"])

    looks, _ = walk(slice_of(older, memory_bytes=64 * MIB), FORMS + EACH_FORM)

    assert_exact(looks)


def test_where_the_driver_cannot_be_asked_never_too_little_is_charged(
    machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    part = without_symbols(
        slice_of(machine, memory_bytes=128 * MIB),
        tmp_path / "lib",
        "libcuda.so.1",
        "cuArrayGetMemoryRequirements",
        "cuMipmappedArrayGetMemoryRequirements",
    )

    looks, _ = walk(part, FORMS + EACH_FORM)

    none = looks.pop("none")
    sizes = [(0, 0), *((look.charged_bytes, look.taken_bytes) for look in looks.values())]
    for name, (before, after) in zip(looks, pairwise(sizes), strict=True):
        assert after[0] - before[0] >= after[1] - before[1], name
    assert sizes[-1][0] < 4 * sizes[-1][1]
    assert (none.charged_bytes, none.taken_bytes) == (0, 0)
