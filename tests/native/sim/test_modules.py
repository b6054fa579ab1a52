"""Modules, libraries, fat binaries and linking on the simulated GPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from libvgpu.sim import PROFILES, Machine
from support.sim.programs import run, said_in

INVALID_VALUE, OUT_OF_MEMORY = 1, 2
INVALID_IMAGE, NO_BINARY, INVALID_PTX = 200, 209, 218
CONTEXT_DESTROYED = 709

PRELUDE = """
from support.shim.device_code import *
F = cuda.CUfunction_attribute
def free(): return check(cuda.cuMemGetInfo())[0]
def load(image): return check(cuda.cuModuleLoadData(image))
def library(image): return check(cuda.cuLibraryLoadData(image, [], [], 0, [], [], 0))
def names(module):
    count = check(cuda.cuModuleGetFunctionCount(module))
    found = check(cuda.cuModuleEnumerateFunctions(count, module))
    return sorted(check(cuda.cuFuncGetName(each)).decode() for each in found)
def attribute_of(function, name):
    return check(cuda.cuFuncGetAttribute(getattr(F, "CU_FUNC_ATTRIBUTE_" + name), function))
context = open_context()
"""


def test_variables_of_ptx_are_memory_until_the_module_goes(machine: Machine) -> None:
    code = """
before = free()
module = load(ptx('''
.visible .global .align 4 .b8 big[4194304];
.visible .const .align 4 .f32 table[1024];
.global .attribute(.managed) .align 8 .b8 shared_with_host[2097152];
''' + kernel("one") + kernel("two")))
address, size = check(cuda.cuModuleGetGlobal(module, b"big"))
check(cuda.cuMemsetD8(int(address) + size - 1, 7, 1))
same(check(cuda.cuModuleGetGlobal(module, b"table"))[1], 4096)
same(before - free(), 6 * MIB + 4096)
same(int(cuda.cuModuleGetGlobal(module, b"none")[0]), NOT_FOUND)
same(names(module), ["one", "two"])
check(cuda.cuModuleUnload(module))
same(size, 4 * MIB)
same(before - free(), 0)
"""
    run(machine, PRELUDE + code)


def test_a_module_that_does_not_fit_is_refused_and_takes_nothing(machine: Machine) -> None:
    code = """
before = free()
one = ".global .b8 a[%d];" % (before // 2)
other = ".global .b8 b[%d];" % (before // 2 + (1 << 20))
say(code=int(cuda.cuModuleLoadData(ptx(one + other))[0]), left=before - free())
"""
    assert said_in(machine, PRELUDE + code) == {"code": OUT_OF_MEMORY, "left": 0}


def test_a_context_takes_its_modules_along(machine: Machine) -> None:
    code = """
before = free()
created = check(cuda.cuCtxCreate(None, 0, 0))
module = load(ptx(".global .b8 big[4194304];" + kernel("one")))
check(cuda.cuCtxDestroy(created))
check(cuda.cuCtxSetCurrent(context))
left = before - free()
late = int(cuda.cuModuleGetFunction(module, b"one")[0])
say(left=left, late=late, unload=int(cuda.cuModuleUnload(module)[0]), again=before - free())
"""
    assert said_in(machine, PRELUDE + code) == {
        "left": 0,
        "late": CONTEXT_DESTROYED,
        "unload": 0,
        "again": 0,
    }


def test_a_kernel_is_as_its_ptx_declares_it(machine: Machine) -> None:
    code = '''
module = load(ptx("""
.shared .align 4 .b8 used[512];
.shared .align 4 .b8 unused[4096];
.extern .shared .align 16 .b8 dynamic[];
.visible .entry work(.param .u32 a, .param .u64 .ptr .global .align 16 b,
                     .param .align 8 .b8 c[24]) // comment { .maxntid
.maxntid 64, 2, 1
.maxnreg 24
{
    .shared .align 8 .b8 own[1000];
    .local .align 16 .b8 depot[48];
    mov.u32 %r1, used;
    ret;
}
"""))
function = check(cuda.cuModuleGetFunction(module, b"work"))
same(attribute_of(function, "MAX_THREADS_PER_BLOCK"), 128)
same(attribute_of(function, "SHARED_SIZE_BYTES"), 1512)
same(attribute_of(function, "MAX_DYNAMIC_SHARED_SIZE_BYTES"), 49152 - 1512)
same(attribute_of(function, "LOCAL_SIZE_BYTES"), 48)
same(attribute_of(function, "NUM_REGS"), 24)
same(attribute_of(function, "PTX_VERSION"), 50)
same(attribute_of(function, "BINARY_VERSION"), 90)
same([check(cuda.cuFuncGetParamInfo(function, i)) for i in range(3)], [[0, 4], [8, 8], [16, 24]])
same(int(cuda.cuFuncGetParamInfo(function, 3)[0]), INVALID_VALUE)
'''
    run(machine, PRELUDE + code)


UNFIT = {
    'ptx(".extern .global .b32 elsewhere;")': (INVALID_PTX,),
    'ptx("", target="sm_100")': (INVALID_PTX,),
    'b"no text at all\\0"': (INVALID_PTX,),
    'b"\\0"': (INVALID_PTX,),
    "cubin(80)": (NO_BINARY,),
    "cubin()[:64] + bytes(4096)": (INVALID_IMAGE, NO_BINARY),
}


def test_images_that_do_not_suit_are_refused(machine: Machine) -> None:
    images = ", ".join(UNFIT)
    answers = said_in(
        machine, PRELUDE + f"say(codes=[int(cuda.cuModuleLoadData(i)[0]) for i in ({images})])"
    )

    wrong = {
        image: code
        for image, code in zip(UNFIT, answers["codes"], strict=True)
        if code not in UNFIT[image]
    }
    assert wrong == {}


def test_a_cubin_says_what_it_holds(machine: Machine) -> None:
    code = """
before = free()
module = load(cubin())
function = check(cuda.cuModuleGetFunction(module, b"work"))
same(names(module), ["work"])
same(before - free(), 4 * MIB + 512)
same(check(cuda.cuModuleGetGlobal(module, b"table"))[1], 3 * MIB)
same(attribute_of(function, "MAX_THREADS_PER_BLOCK"), 256)
same(attribute_of(function, "SHARED_SIZE_BYTES"), 2048)
same(attribute_of(function, "CONST_SIZE_BYTES"), 256)
same(attribute_of(function, "NUM_REGS"), 128)
same(attribute_of(function, "LOCAL_SIZE_BYTES"), 64)
same([check(cuda.cuFuncGetParamInfo(function, i)) for i in range(2)], [[0, 8], [8, 4]])
"""
    run(machine, PRELUDE + code)


def test_a_damaged_cubin_of_known_length_is_refused_whatever_is_wrong(
    machine: Machine, tmp_path: Path
) -> None:
    code = f"""
import random
random.seed(7)
image, codes = cubin(), set()
for round in range(400):
    damaged = bytearray(image)
    for _ in range(random.randrange(1, 6)):
        damaged[random.randrange(4, len(damaged))] = random.randrange(256)
    cut = random.randrange(4, len(damaged)) if round % 2 else len(damaged)
    with open({str(tmp_path / "image")!r}, "wb") as file:
        file.write(damaged[:cut])
    result, module = cuda.cuModuleLoad({str(tmp_path / "image").encode()!r})
    codes.add(int(result))
    if int(result) == 0:
        check(cuda.cuModuleUnload(module))
say(refused=200 in codes, all=codes <= {{0, 2, 200, 209}})
"""
    assert said_in(machine, PRELUDE + code) == {"refused": True, "all": True}


@pytest.mark.parametrize(
    ("profile", "found"),
    [("h100-80g", "elf90"), ("a100-80g", "elf80"), ("l40s", "elf86"), ("t4", "ptx75")],
)
def test_of_a_fat_binary_the_best_image_is_taken(tmp_path: Path, profile: str, found: str) -> None:
    machine = Machine.create([PROFILES[profile]], tmp_path / "m")
    code = """
def named(architecture):
    image = Cubin(architecture)
    image.section(".text.elf%d" % architecture, bytes(16))
    return ELF_KIND, architecture, image.build()
def text(architecture):
    return PTX_KIND, architecture, ptx(kernel("ptx%d" % architecture), "sm_%d" % architecture)[:-1]
bundle = fatbin(text(50), named(80), named(86), text(75), named(90), text(90))
say(found=names(load(bundle)))
"""
    assert said_in(machine, PRELUDE + code) == {"found": [found]}


def test_fat_binaries_come_wrapped_packed_and_damaged(machine: Machine) -> None:
    code = """
text = ptx(kernel("packed" + "d" * 300) + "// " + "no repetition " * 30)
packed = fatbin((PTX_KIND, 90, text), flags=LZ4)
by_zstd = fatbin((PTX_KIND, 90, text), flags=ZSTD)
plain = fatbin((PTX_KIND, 90, ptx(kernel("wrapped"))))
held = ctypes.create_string_buffer(plain)
wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(held), 0)
def refusal(image): return int(cuda.cuModuleLoadFatBinary(image)[0])
same(names(check(cuda.cuModuleLoadFatBinary(wrapper))), ["wrapped"])
same(names(load(packed)), ["packed" + "d" * 300])
same(refusal(packed[:80] + b"\\x0f" + packed[81:]), INVALID_IMAGE)
same(names(load(by_zstd)), ["packed" + "d" * 300])
same(refusal(by_zstd[:80] + b"\\0" + by_zstd[81:]), INVALID_IMAGE)
same(refusal(fatbin((PTX_KIND, 100, text))), NO_BINARY_FOR_GPU)
same(refusal(fatbin((ELF_KIND, 80, cubin(80)))), NO_BINARY_FOR_GPU)
same(refusal(plain[:6] + b"\\2\\0" + plain[8:]), INVALID_IMAGE)
"""
    run(machine, PRELUDE + code)


def test_a_library_has_variables_in_each_context_that_uses_it(machine: Machine) -> None:
    code = """
before = free()
loaded = library(ptx(".visible .global .b8 big[4194304];" + kernel("one")))
same(before - free(), 0)
kernel_handle = check(cuda.cuLibraryGetKernel(loaded, b"one"))
first = check(cuda.cuLibraryGetGlobal(loaded, b"big"))[0]
same(before - free(), 4 * MIB)
other = check(cuda.cuCtxCreate(None, 0, 0))
check(cuda.cuLaunchKernel(cuda.CUfunction(int(kernel_handle)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
same(before - free(), 8 * MIB)
second = check(cuda.cuLibraryGetGlobal(loaded, b"big"))[0]
function = check(cuda.cuKernelGetFunction(kernel_handle))
module = check(cuda.cuLibraryGetModule(loaded))
same(int(check(cuda.cuFuncGetModule(function))) == int(module), True)
same(int(cuda.cuModuleUnload(module)[0]), NOT_PERMITTED)
same(int(check(cuda.cuKernelGetLibrary(kernel_handle))) == int(loaded), True)
check(cuda.cuCtxDestroy(other))
check(cuda.cuCtxSetCurrent(context))
same(before - free(), 4 * MIB)
check(cuda.cuLibraryUnload(loaded))
same(int(first) != int(second), True)
same(before - free(), 0)
"""
    run(machine, PRELUDE + code)


def test_a_library_names_its_kernels_and_its_managed_variables(machine: Machine) -> None:
    code = """
loaded = library(cubin())
count = check(cuda.cuLibraryGetKernelCount(loaded))
kernels = check(cuda.cuLibraryEnumerateKernels(count, loaded))
module = load(ptx(kernel("plain")))
plain = check(cuda.cuModuleGetFunction(module, b"plain"))
same([check(cuda.cuKernelGetName(each)).decode() for each in kernels], ["work"])
same(check(cuda.cuLibraryGetManaged(loaded, b"shown"))[1], MIB)
same(int(cuda.cuLibraryGetManaged(loaded, b"table")[0]), NOT_FOUND)
same(check(cuda.cuKernelGetParamInfo(kernels[0], 1)), [8, 4])
same(int(cuda.cuLibraryGetUnifiedFunction(loaded, b"work")[0]), NOT_FOUND)
same(int(cuda.cuKernelGetFunction(cuda.CUkernel(int(plain)))[0]), INVALID_HANDLE)
"""
    run(machine, PRELUDE + code)


def test_an_option_without_a_value_needs_no_values(machine: Machine, tmp_path: Path) -> None:
    file = tmp_path / "one.ptx"
    code = f"""
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
image = ptx(kernel("one"))
open({str(file)!r}, "wb").write(image)
def load(what, option, values=None, from_file=False):
    options, made = (ctypes.c_int * 1)(option), ctypes.c_void_p()
    call = driver.cuLibraryLoadFromFile if from_file else driver.cuLibraryLoadData
    return call(ctypes.byref(made), what, None, None, 0, options, values, 1)
TABLE, PRESERVED, UNKNOWN = 0, 1, 2
say(
    preserved=load(image, PRESERVED),
    preserved_file=load({str(file).encode()!r}, PRESERVED, from_file=True),
    table=load(image, TABLE),
    table_with_value=load(image, TABLE, (ctypes.c_void_p * 1)()),
    unknown=load(image, UNKNOWN, (ctypes.c_void_p * 1)()),
)
"""
    assert said_in(machine, PRELUDE + code) == {
        "preserved": 0,
        "preserved_file": INVALID_VALUE,
        "table": INVALID_VALUE,
        "table_with_value": 0,
        "unknown": INVALID_VALUE,
    }


@pytest.mark.parametrize(
    ("version", "mode", "lazy"),
    [(13000, None, True), (12040, None, True), (13000, "EAGER", False)],
)
def test_lazy_loading_is_the_default_since_it_is(
    tmp_path: Path, version: int, mode: str | None, lazy: bool
) -> None:
    machine = Machine.create([PROFILES["t4"]], tmp_path / "m", driver_version=version)
    env = {"CUDA_MODULE_LOADING": mode} if mode else {}
    code = """
module = load(ptx(kernel("one")))
library = ctypes.CDLL("libcuda.so.1")
function, state = ctypes.c_void_p(), ctypes.c_int(-1)
def loaded():
    assert library.cuFuncIsLoaded(ctypes.byref(state), function) == 0
    return state.value
assert library.cuModuleEnumerateFunctions(ctypes.byref(function), 1,
                                          ctypes.c_void_p(int(module))) == 0
before = loaded()
assert library.cuFuncLoad(function) == 0
mode = ctypes.c_int()
library.cuModuleGetLoadingMode(ctypes.byref(mode))
say(mode=mode.value, before=before, after=loaded())
"""
    assert said_in(machine, PRELUDE + code, env) == {
        "mode": 2 if lazy else 1,
        "before": 0 if lazy else 1,
        "after": 1,
    }


def test_a_link_joins_its_inputs_into_an_image_that_loads(machine: Machine) -> None:
    code = """
KIND = cuda.CUjitInputType
def add(state, image, kind): return int(cuda.cuLinkAddData(
    state, kind, image, len(image), b"input", 0, [], [])[0])
def link(*inputs):
    state = check(cuda.cuLinkCreate(0, [], []))
    codes = [add(state, image, kind) for image, kind in inputs]
    return state, codes
user = ptx(".extern .global .b8 big[1048576];" + kernel("uses", ".reqntid 32, 2, 1",
           ".shared .b8 own[100]; ret;"))
owner = ptx(".visible .global .b8 big[1048576];"
            ".visible .entry gap(.param .u32 a, .param .u64 b) { ret; }")
ptx_kind, cubin_kind = KIND.CU_JIT_INPUT_PTX, KIND.CU_JIT_INPUT_CUBIN
state, codes = link((user, ptx_kind), (owner, ptx_kind), (cubin(), cubin_kind))
image, size = check(cuda.cuLinkComplete(state))
copy = ctypes.string_at(image, size)
check(cuda.cuLinkDestroy(state))
before = free()
module = load(copy)
same(before - free(), 5 * MIB + 512)
work = check(cuda.cuModuleGetFunction(module, b"work"))
uses = check(cuda.cuModuleGetFunction(module, b"uses"))
alone, _ = link((user, ptx_kind))
same(link((owner, ptx_kind), (owner, ptx_kind))[1], [0, INVALID_IMAGE])
same(link((owner, KIND.CU_JIT_INPUT_OBJECT))[1], [NOT_SUPPORTED])
same(codes, [0, 0, 0])
same(names(module), ["gap", "uses", "work"])
same([check(cuda.cuFuncGetParamInfo(work, i)) for i in range(2)], [[0, 8], [8, 4]])
same(check(cuda.cuFuncGetParamInfo(check(cuda.cuModuleGetFunction(module, b"gap")), 1)), [8, 8])
same(attribute_of(uses, "SHARED_SIZE_BYTES"), 100)
same(attribute_of(work, "MAX_THREADS_PER_BLOCK"), 256)
same(int(cuda.cuLinkComplete(alone)[0]), INVALID_IMAGE)
"""
    run(machine, PRELUDE + code)


def test_dead_processes_give_back_what_modules_took(tmp_path: Path) -> None:
    profile = replace(PROFILES["t4"], context_bytes=0)
    machine = Machine.create([profile], tmp_path / "m")
    said_in(machine, PRELUDE + 'load(ptx(".global .b8 big[4194304];")); say()')

    assert machine.books()[0].memory_used_bytes == 0
