"""Modules and libraries under a slice: what they take is charged, at the load or soon after."""

from pathlib import Path

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from libvgpu.sim.profiles import PROFILES
from support.lines import expect, next_line, tell
from support.shim.slices import Slice, SliceOf
from support.sim.driver import library_of

MIB = 1 << 20
CONTEXT = PROFILES["h100-80g"].context_bytes
LIMIT = 64 * MIB
OUT_OF_MEMORY = 2
START = """
import ctypes, os, sys, threading, time
from support.shim.both_books import agree, device_bytes, ledger_bytes
from support.shim.cuda_client import *
from support.shim.device_code import *
MIB, NONE = 1 << 20, ([], [], 0, [], [], 0)
def variable(size, more=""):
    return ptx(f".visible .global .b8 big[{size}];" + more + kernel("one"))
def library(image): return check(driver.cuLibraryLoadData(image, *NONE))
def new_context():
    return check(create_context())
def launch(kernel):
    return code(driver.cuLaunchKernel(driver.CUfunction(int(kernel)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
context = open_context()
base = agree() if "VGPU_DIR" in os.environ else 0
def look(): check(driver.cuCtxSynchronize())  # a quiet moment
def held(): look(); return agree() - base
"""


def numbers(part: Slice, code: str, *arguments: str) -> list[int]:
    return [int(word) for word in part.run(START + code, *arguments)]


@pytest.fixture
def part(costly_machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(costly_machine, memory_bytes=CONTEXT + LIMIT)


@pytest.fixture
def roomy(costly_machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(costly_machine, memory_bytes=4 * CONTEXT)


def test_every_load_of_a_module_is_charged_refused_and_returned(
    part: Slice, tmp_path: Path
) -> None:
    code = """
def write(image):
    with open(sys.argv[1], "wb") as file: file.write(image)
    return sys.argv[1].encode()
for load in (driver.cuModuleLoadData, driver.cuModuleLoadFatBinary,
             lambda image: driver.cuModuleLoadDataEx(image, 0, [], []),
             lambda image: driver.cuModuleLoad(write(image))):
    module = check(load(variable(3 * MIB + 1)))
    print(agree() - base)
    piece = check(driver.cuMemAlloc(32 * MIB))
    left = 64 * MIB - (agree() - base)
    print(code(load(variable(left + 1))), agree() - base,
          code(load(variable(left, ".const .u8 c;"))))
    whole = check(load(variable(left)))
    print(agree() - base, code(load(variable(1))))
    check(driver.cuModuleUnload(whole)); check(driver.cuModuleUnload(module))
    check(driver.cuMemFree(piece))
    print(agree() - base)
"""
    seen = numbers(part, code, str(tmp_path / "image"))

    one = 3 * MIB + 512
    assert seen == 4 * [one, OUT_OF_MEMORY, one + 32 * MIB, OUT_OF_MEMORY, LIMIT, OUT_OF_MEMORY, 0]


def test_the_charge_is_what_the_driver_takes_whatever_the_image(part: Slice) -> None:
    code = '''
declarations = """
.visible .global .align 8 .v4 .f32 lanes[1000][3]; // .global .b8 none[1000000];
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};
.global .attribute(.managed) .align 8 .b8 shared_with_host[2097152]; /* .const .u8 x; */
.extern .shared .align 16 .b8 dynamic[];
.weak .global .b64 one_word = generic(lanes);
.visible .entry work(.param .u64 .ptr .global .align 16 a)
{ .shared .b8 own[4096]; ld.global.u32 %r1, [%rd1]; ret; }
"""
text = ptx(declarations)
packed = fatbin((PTX_KIND, 90, text + b" " * 4000), flags=LZ4)
packs = ctypes.create_string_buffer(fatbin((PTX_KIND, 50, variable(64 * MIB)[:-1]),
    (PTX_KIND, 90, text), (ELF_KIND, 80, cubin(80)), (PTX_KIND, 100, variable(1))))
wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(packs), 0)
for image in (text, cubin(), packed, wrapper, fatbin((ELF_KIND, 90, cubin()))):
    module = check(driver.cuModuleLoadData(image))
    print(agree() - base)
    check(driver.cuModuleUnload(module))
agree()
'''
    seen = numbers(part, code)

    text = 48128 + 512 + 2 * MIB + 512
    assert seen == [text, 4 * MIB + 512, text, text, 4 * MIB + 512]


def test_a_context_takes_its_modules_along(roomy: Slice) -> None:
    code = """
second = new_context()
module = check(driver.cuModuleLoadData(variable(4 * MIB)))
print(agree() - 2 * base)
check(driver.cuCtxDestroy(second))
print(agree() - base)
check(driver.cuCtxSetCurrent(context))
check(driver.cuModuleUnload(module))  # only its handle was left
loaded = library(variable(2 * MIB))
check(driver.cuModuleLoadData(variable(4 * MIB)))
check(driver.cuLibraryGetGlobal(loaded, b"big"))
print(held())
check(driver.cuDevicePrimaryCtxReset(0))
print(agree())
open_context()
check(driver.cuLibraryGetGlobal(loaded, b"big"))
print(held())
check(driver.cuLibraryUnload(loaded))
print(held())
"""
    assert numbers(roomy, code) == [4 * MIB, 0, 6 * MIB, 0, 2 * MIB, 0]


USES = {
    "kernel": 'launch(check(driver.cuLibraryGetKernel(loaded, b"one")))',
    "kernels": "launch(check(driver.cuLibraryEnumerateKernels(1, loaded))[0])",
    "module": "driver.cuLibraryGetModule(loaded)",
    "global": 'driver.cuLibraryGetGlobal(loaded, b"big")',
    "managed": 'driver.cuLibraryGetManaged(loaded, b"shown")',
    "function": 'driver.cuKernelGetFunction(check(driver.cuLibraryGetKernel(loaded, b"one")))',
}


@pytest.mark.parametrize("use", USES)
def test_a_library_is_charged_however_it_comes_into_a_context(part: Slice, use: str) -> None:
    code = f"""
loaded = library(variable(4 * MIB, ".global .attribute(.managed) .b8 shown[512];"))
print(held() // MIB)
{USES[use]}
print(held() // MIB)
check(driver.cuLibraryUnload(loaded))
print(held() // MIB)
"""
    assert numbers(part, code) == [0, 4, 0]


def test_what_is_loaded_later_is_charged_beyond_the_limit_and_nothing_more_is_granted(
    part: Slice,
) -> None:
    code = """
piece = check(driver.cuMemAlloc(62 * MIB))
loaded = library(variable(4 * MIB))
print(launch(check(driver.cuLibraryGetKernel(loaded, b"one"))), code(driver.cuMemAlloc(1)))
print(held() // MIB)
check(driver.cuLibraryUnload(loaded))
print(code(driver.cuMemAlloc(2 * MIB)), held() // MIB)
"""
    assert numbers(part, code) == [0, OUT_OF_MEMORY, 66, 0, 64]


def test_a_library_that_is_loaded_eagerly_is_refused_where_it_does_not_fit(
    part: Slice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")

    code = """
loaded = library(variable(4 * MIB))
print((ledger_bytes() - base) // MIB, held() // MIB)
check(driver.cuLibraryUnload(loaded))
print(agree() - base)
piece = check(driver.cuMemAlloc(62 * MIB))
print(code(driver.cuLibraryLoadData(variable(4 * MIB), *NONE)), held() // MIB)
print(code(driver.cuLibraryLoadData(variable(2 * MIB), *NONE)), held() // MIB)
"""
    assert numbers(part, code) == [4, 4, 0, OUT_OF_MEMORY, 62, 0, 64]


def test_a_library_is_charged_in_each_context_that_uses_it(roomy: Slice) -> None:
    code = """
def grown(contexts): look(); return (agree() - contexts * base) // MIB
loaded, unused = library(variable(20 * MIB)), library(variable(50 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
print(grown(1))
second = new_context()
print(launch(handed_out), grown(2))
stream = check(driver.cuStreamCreate(0))
check(driver.cuCtxSetCurrent(context))
check(driver.cuLaunchKernel(driver.CUfunction(int(handed_out)), 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
print(grown(2))
check(driver.cuCtxDestroy(second))
print(grown(1))
check(driver.cuLibraryUnload(loaded))
print(grown(1))
"""
    assert numbers(roomy, code) == [20, 0, 40, 40, 20, 0]


def test_each_gpu_is_charged_for_its_own_contexts(
    machine: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    two_gpus = Machine.create(2 * [PROFILES["h100-80g"]], tmp_path / "two", machine.driver_version)
    part = slice_of(two_gpus, memory_bytes=LIMIT)
    part.directory = tmp_path / "slice-of-two"
    limits = tuple(
        DeviceLimit(d.uuid, CONTEXT + size)
        for d, size in zip(two_gpus.devices, (LIMIT, LIMIT // 4), strict=True)
    )
    create(part.directory, ContainerLimits("two", Family.VGPU, limits))

    code = """
loaded = library(variable(20 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
print(held() // MIB, agree(1))
open_context(1)
module = check(driver.cuModuleLoadData(variable(16 * MIB)))
print(held() // MIB, (agree(1) - base) // MIB, code(driver.cuModuleLoadData(variable(1))))
check(driver.cuModuleUnload(module))
print(launch(handed_out), code(driver.cuMemAlloc(1)), (agree(1) - base) // MIB)
check(driver.cuLibraryUnload(loaded))
print(held(), agree(1) - base)
"""
    assert numbers(part, code) == [20, 0, 20, 16, OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 20, 0, 0]


def test_where_nvml_is_not_there_the_load_of_a_module_is_estimated(
    part: Slice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(library_of(part.machine, "libcuda.so.1"))
    environment = part.environment() | {"LD_LIBRARY_PATH": str(tmp_path)}
    monkeypatch.setattr(part, "environment", lambda *, shim=True: environment)
    part.change(context_bytes=CONTEXT)

    code = """
module = check(driver.cuModuleLoadData(variable(4 * MIB)))
print((agree() - base) // MIB)
check(driver.cuModuleUnload(module))
piece = check(driver.cuMemAlloc(60 * MIB + 512))
print(code(driver.cuModuleLoadData(variable(4 * MIB))), (agree() - base) // MIB)
check(driver.cuMemFree(piece))
print(code(driver.cuModuleLoadData(variable(65 * MIB))), agree() - base)
print(launch(check(driver.cuLibraryGetKernel(library(variable(4 * MIB)), b"one"))))
look()
print((device_bytes() - ledger_bytes()) // MIB)  # that only the node agent sees
"""
    assert numbers(part, code) == [4, OUT_OF_MEMORY, 60, OUT_OF_MEMORY, 0, 0, 4]


def test_images_that_the_driver_refuses_are_refused_the_same_way(
    part: Slice, tmp_path: Path
) -> None:
    code = (
        START
        + """
import random
random.seed(7)
images = [ptx(".extern .global .b32 elsewhere;"), ptx("", target="sm_100"), b"no text\\0", b"\\0",
          cubin(80), cubin()[:64] + bytes(4096), fatbin((PTX_KIND, 90, ptx("")), flags=ZSTD)]
print(*(int(driver.cuModuleLoadData(image)[0]) for image in images))
print(*(int(driver.cuLibraryLoadData(image, *NONE)[0]) for image in images))
path, image = sys.argv[1].encode(), cubin()
for round in range(200):
    damaged = bytearray(image)
    for _ in range(random.randrange(1, 6)):
        damaged[random.randrange(4, len(damaged))] = random.randrange(256)
    with open(path, "wb") as file:
        file.write(damaged[:random.randrange(4, len(damaged)) if round % 2 else len(damaged)])
    result, module = driver.cuModuleLoad(path)
    print(int(result))
    if int(result) == 0:
        check(driver.cuModuleUnload(module))
print(int(driver.cuModuleLoad(b"/nowhere")[0]), int(driver.cuModuleLoad(b"/")[0]),
      int(driver.cuModuleUnload(0)[0]), int(driver.cuLibraryUnload(0)[0]), device_bytes())
"""
    )
    with_shim = part.run(code, str(tmp_path / "image"))
    held = part.usage().devices[0].used_bytes
    without = part.run(code, str(tmp_path / "image"), shim=False)

    # A damaged size may ask for more than the slice has, though less than the GPU has.
    differ = [pair for pair in zip(with_shim, without, strict=True) if pair[0] != pair[1]]
    assert set(differ) <= {("2", "0"), ("2", "200")}
    assert len(differ) < 20
    assert held == CONTEXT


def test_threads_that_load_and_make_contexts_at_once_leave_exact_books(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    code = """
def churn(number):
    for round in range(12):
        loaded = library(variable(MIB))
        check(driver.cuCtxSetCurrent(context))
        mine = new_context() if number % 2 else None
        handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
        check(driver.cuCtxSetCurrent(mine or context))
        check(driver.cuModuleLoadData(variable(MIB))) if mine else None
        launch(handed_out)
        if round % 2: check(driver.cuLibraryUnload(loaded))
        if mine: check(driver.cuCtxDestroy(mine))
        if not round % 2: check(driver.cuLibraryUnload(loaded))
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
time.sleep(1.1)
print(held())
"""
    assert numbers(slice_of(costly_machine, memory_bytes=6 * CONTEXT), code) == [0]


CHURN = """
print("ready", flush=True)
sys.stdin.readline()
refused, modules = 0, []
for _ in range(150):
    answer = driver.cuModuleLoadData(variable(1500000))
    if code(answer) == 0: modules.append(answer[1])
    else: refused += 1
    if len(modules) > 3: check(driver.cuModuleUnload(modules.pop(0)))
look()
print(refused, flush=True)
sys.stdin.readline()
"""


def test_processes_that_load_code_at_once_are_within_the_limit_at_rest(
    costly_machine: Machine, slice_of: SliceOf
) -> None:
    part = slice_of(costly_machine, memory_bytes=4 * CONTEXT + 14 * MIB)
    processes = [part.start(START.replace("agree()", "0") + CHURN) for _ in range(4)]
    for each in processes:
        assert each.stdout is not None
        expect(each)
    for each in processes:
        tell(each)
    refused = [int(next_line(each)) for each in processes]

    held = costly_machine.books()[0].memory_used_bytes
    charged = part.usage().devices[0].used_bytes

    assert sum(refused) > 0  # what they keep at their end is more than there is
    assert held == charged <= 4 * CONTEXT + 14 * MIB
    for each in processes:
        each.communicate("\n")


def test_a_forked_child_leaves_its_parents_libraries_alone(part: Slice) -> None:
    code = """
loaded = library(variable(20 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
look()
child = os.fork()
if child == 0:
    codes = (driver.cuLibraryGetKernel(loaded, b"one"), driver.cuModuleLoadData(variable(1)),
             driver.cuLibraryUnload(loaded), create_context())
    os._exit(0 if all(code(answer) for answer in codes) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), held() // MIB)
check(driver.cuLibraryUnload(loaded))
print(held())
"""
    assert numbers(part, code) == [0, 20, 0]
