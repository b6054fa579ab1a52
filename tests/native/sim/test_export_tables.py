"""The private tables that NVIDIA's runtime library asks the driver for."""

from libvgpu.sim import Machine
from support.sim.programs import run

TABLES = """
from ctypes import CDLL, CFUNCTYPE, POINTER, byref, c_int, c_uint64, c_void_p
library = CDLL("libcuda.so.1")

def table(name):
    found = c_void_p(1)
    answer = library.cuGetExportTable(byref(found), bytes.fromhex(name.replace("-", "")))
    return answer, found.value

def function(table, slot, *arguments):
    return CFUNCTYPE(c_int, *arguments)(ctypes.cast(table, POINTER(c_void_p))[slot])
"""


def test_they_are_there_before_the_start_and_begin_with_their_size(machine: Machine) -> None:
    run(
        machine,
        TABLES
        + """
for name, slots in [("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", 13),
                    ("a094798c-2e74-2e74-93f2-0800200c0a66", 7),
                    ("42d85a81-23f6-cb47-8298-f6e78a3aecdc", 4),
                    ("d4082055-bde6-704b-8d34-ba123c66e1f2", 3),
                    ("263e8860-7cd2-6143-92f6-bbd5006dfa7e", 15),
                    ("21318c60-9714-3248-8ca6-41ff7324c8f2", 95)]:
    answer, found = table(name)
    same((answer, ctypes.cast(found, POINTER(c_uint64))[0]), (0, 8 * slots))
same(table("f8cff951-2146-8b4e-b9e2-fb469e7c0dd9"), (NOT_FOUND, None))
same(library.cuGetExportTable(None, bytes(16)), INVALID_VALUE)
same(library.cuGetExportTable(byref(c_void_p()), None), INVALID_VALUE)
""",
    )


STORAGE = (
    TABLES
    + """
Ended = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
storage = table("c693336e-1121-df11-a8c3-68f355d89593")[1]
put = function(storage, 0, c_void_p, c_void_p, c_void_p, c_void_p)
delete = function(storage, 1, c_void_p, c_void_p)
get = function(storage, 2, POINTER(c_void_p), c_void_p, c_void_p)
ended = []
note = Ended(lambda context, key, value: ended.append((context, key, value)))
end = ctypes.cast(note, c_void_p)

def kept(context, key):
    value = c_void_p()
    answer = get(byref(value), context, key)
    return value.value if answer == 0 else answer

check(cuda.cuInit(0))
same(kept(None, 1), INVALID_CONTEXT)  # none is current
own = int(check(create_context()))
"""
)


def test_a_context_keeps_values_by_key_until_it_ends(machine: Machine) -> None:
    run(
        machine,
        STORAGE
        + """
same([put(None, 1, 10, end), put(own, 2, 20, end), put(own, 3, 30, None)], [0, 0, 0])
same([kept(own, 1), kept(None, 2), kept(own, 4)], [10, 20, INVALID_HANDLE])
same([put(own, 2, 21, end), kept(own, 2), ended], [0, 21, []])  # takes the former one's place
same([delete(own, 1), kept(own, 1), delete(own, 1), ended],
     [0, INVALID_HANDLE, INVALID_HANDLE, []])
check(cuda.cuCtxDestroy(own))
same(ended, [(own, 2, 21)])
""",
    )


def test_a_primary_context_tells_of_its_end_before_it_ends(machine: Machine) -> None:
    """Whoever is told may still use it."""
    run(
        machine,
        STORAGE
        + """
runtime = table("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9")[1]
named = c_void_p()
same(function(runtime, 2, POINTER(c_void_p), c_int)(byref(named), 0), 0)
primary = named.value
check(cuda.cuCtxSetCurrent(primary))  # a handle before it is begun
same(int(cuda.cuMemGetInfo()[0]), CONTEXT_IS_DESTROYED)
for end_it in (cuda.cuDevicePrimaryCtxReset, cuda.cuDevicePrimaryCtxRelease):
    same(int(check(cuda.cuDevicePrimaryCtxRetain(0))), primary)
    check(cuda.cuCtxSetCurrent(primary))
    ended.clear()
    used = Ended(lambda context, key, value: ended.append(int(cuda.cuMemAlloc(1 << 20)[0])))
    same(put(primary, 1, 10, ctypes.cast(used, c_void_p)), 0)
    check(end_it(0))
    same([ended, kept(primary, 1)], [[0], INVALID_HANDLE])
""",
    )


def test_a_library_knows_a_stream_by_the_numbers_of_its_context_and_itself(
    machine: Machine,
) -> None:
    """cuBLAS has memory of its own for each stream."""
    run(
        machine,
        TABLES
        + """
tools = table("21318c60-9714-3248-8ca6-41ff7324c8f2")[1]
number_of = function(tools, 4, c_void_p, POINTER(c_uint64))
number_of_stream = function(tools, 39, c_void_p, c_void_p, POINTER(c_uint64))
stream_itself = function(tools, 51, c_void_p, c_void_p, POINTER(c_void_p))
check(cuda.cuInit(0))
context = check(create_context())
stream = check(cuda.cuStreamCreate(0))
found, itself = c_uint64(), c_void_p()
same((number_of(int(context), byref(found)), found.value), (0, check(cuda.cuCtxGetId(context))))
same((stream_itself(int(context), int(stream), byref(itself)), itself.value), (0, int(stream)))
same(stream_itself(int(context), None, byref(itself)), 0)  # what the default stream stands for
same(number_of_stream(int(context), itself, byref(found)), 0)
same(found.value, check(cuda.cuStreamGetId(0)))
same(stream_itself(int(context), None, None), INVALID_VALUE)
same(function(tools, 1)(), NOT_SUPPORTED)
""",
    )


def test_a_library_is_told_of_the_functions_of_a_module(machine: Machine) -> None:
    """cuFFT finds its kernels so."""
    run(
        machine,
        TABLES
        + """
from support.shim.device_code import kernel, ptx
modules = table("6e163fbe-b958-444d-835c-e182aff1991e")[1]
Tell = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
functions_of = function(modules, 7, c_void_p, c_void_p, Tell, c_void_p)
check(cuda.cuInit(0))
context = check(create_context())
module = check(cuda.cuModuleLoadData(ptx(kernel("one") + kernel("two"))))
told = []
same(functions_of(int(context), int(module), Tell(lambda *given: told.append(given)), 7), 2)
expected = [int(check(cuda.cuModuleGetFunction(module, name))) for name in (b"one", b"two")]
same(sorted(told), sorted((7, function, int(module)) for function in expected))
""",
    )
