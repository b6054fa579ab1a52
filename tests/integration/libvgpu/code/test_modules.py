"""Modules and libraries under a slice: what their variables take is charged, in every context."""

from collections.abc import Callable
from pathlib import Path

import pytest

from libvgpu.limits import ContainerLimits, DeviceLimit, Family
from libvgpu.region import create
from libvgpu.sim import Machine
from support.simulated_driver import library_of
from support.slices import Slice

SliceOf = Callable[..., Slice]
MIB = 1 << 20
LIMIT = 64 * MIB
OUT_OF_MEMORY = 2
START = """
import ctypes, os, sys, threading
from support.both_books import agree, device_bytes, ledger_bytes
from support.cuda_client import *
from support.device_code import *
MIB, NONE = 1 << 20, ([], [], 0, [], [], 0)
def variable(size, more=""):
    return ptx(f".visible .global .b8 big[{size}];" + more + kernel("one"))
def library(image): return check(driver.cuLibraryLoadData(image, *NONE))
def code(answer): return int(answer[0])
def new_context():
    return check(create_context())
def launch(kernel):
    return code(driver.cuLaunchKernel(driver.CUfunction(int(kernel)), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
context = open_context()
"""
#: Sizes that have to be worked out are not read, so that they must be measured.
UNREADABLE = 'ptx(".visible .global .b8 big[4194304*1];" + kernel("one"))'


def numbers(part: Slice, code: str, *arguments: str) -> list[int]:
    return [int(word) for word in part.run(START + code, *arguments)]


@pytest.fixture
def part(machine: Machine, slice_of: SliceOf) -> Slice:
    return slice_of(machine, memory_bytes=LIMIT)


def test_every_load_of_a_module_is_charged_refused_and_returned(
    part: Slice, tmp_path: Path
) -> None:
    seen = numbers(
        part,
        """
def write(image):
    with open(sys.argv[1], "wb") as file: file.write(image)
    return sys.argv[1].encode()
for load in (driver.cuModuleLoadData, driver.cuModuleLoadFatBinary,
             lambda image: driver.cuModuleLoadDataEx(image, 0, [], []),
             lambda image: driver.cuModuleLoad(write(image))):
    module = check(load(variable(3 * MIB + 1)))
    print(agree())
    held = check(driver.cuMemAlloc(32 * MIB))
    left = 64 * MIB - agree()
    print(code(load(variable(left + 1))), agree(), code(load(variable(left, ".const .u8 c;"))))
    whole = check(load(variable(left)))
    print(agree(), code(load(variable(1))))
    check(driver.cuModuleUnload(whole)); check(driver.cuModuleUnload(module))
    check(driver.cuMemFree(held))
    print(agree())
""",
        str(tmp_path / "image"),
    )

    one = 3 * MIB + 512
    assert seen == 4 * [one, OUT_OF_MEMORY, one + 32 * MIB, OUT_OF_MEMORY, LIMIT, OUT_OF_MEMORY, 0]


def test_the_charge_is_what_the_driver_takes_whatever_the_image(part: Slice) -> None:
    seen = numbers(
        part,
        '''
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
held = ctypes.create_string_buffer(fatbin((PTX_KIND, 50, variable(64 * MIB)[:-1]),
    (PTX_KIND, 90, text), (ELF_KIND, 80, cubin(80)), (PTX_KIND, 100, variable(1))))
wrapper = struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(held), 0)
for image in (text, cubin(), packed, wrapper, fatbin((ELF_KIND, 90, cubin()))):
    module = check(driver.cuModuleLoadData(image))
    print(agree())
    check(driver.cuModuleUnload(module))
agree()
''',
    )

    text = 48128 + 512 + 2 * MIB + 512
    assert seen == [text, 4 * MIB + 512, text, text, 4 * MIB + 512]


def test_a_context_takes_its_modules_along(part: Slice) -> None:
    seen = numbers(
        part,
        """
new_context()
module = check(driver.cuModuleLoadData(variable(4 * MIB)))
print(agree())
check(driver.cuCtxDestroy(check(driver.cuCtxGetCurrent())))
print(agree())
check(driver.cuCtxSetCurrent(context))
check(driver.cuModuleUnload(module))  # only its handle was left
loaded = library(variable(2 * MIB))
check(driver.cuModuleLoadData(variable(4 * MIB)))
check(driver.cuLibraryGetGlobal(loaded, b"big"))
print(agree())
check(driver.cuDevicePrimaryCtxReset(0))
print(agree())
open_context()
check(driver.cuLibraryGetGlobal(loaded, b"big"))
print(agree())
check(driver.cuLibraryUnload(loaded))
print(agree())
""",
    )

    assert seen == [4 * MIB, 0, 6 * MIB, 0, 2 * MIB, 0]


USES = {
    "kernel": 'launch(check(driver.cuLibraryGetKernel(loaded, b"one")))',
    "kernels": "launch(check(driver.cuLibraryEnumerateKernels(1, loaded))[0])",
    "module": "driver.cuLibraryGetModule(loaded)",
    "global": 'driver.cuLibraryGetGlobal(loaded, b"big")',
    "managed": 'driver.cuLibraryGetManaged(loaded, b"shown")',
    "function": 'driver.cuKernelGetFunction(check(driver.cuLibraryGetKernel(loaded, b"one")))',
}


@pytest.mark.parametrize("mode", ["LAZY", "EAGER"])
def test_a_library_is_charged_before_any_way_into_a_context(
    part: Slice, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", mode)
    image = 'variable(4 * MIB, ".global .attribute(.managed) .b8 shown[512];")'
    each = "".join(
        f"""
loaded = library({image})
print(ledger_bytes() // MIB)
{use}
print(agree() // MIB)
check(driver.cuLibraryUnload(loaded))
agree()
held = check(driver.cuMemAlloc(60 * MIB))
answer = driver.cuLibraryLoadData({image}, *NONE)
if code(answer) == 0:
    loaded = answer[1]
    try: used = {use}
    except CudaError as error: used = (error.code,)
    print(code(used))
    agree()
    check(driver.cuLibraryUnload(loaded))
else:
    print(code(answer))
check(driver.cuMemFree(held))
agree()
"""
        for use in USES.values()
    )

    seen = numbers(part, each)

    unused = 4 if mode == "EAGER" else 0
    assert seen == len(USES) * [unused, 4, OUT_OF_MEMORY]


def test_a_library_that_fits_exactly_is_granted(part: Slice) -> None:
    assert numbers(
        part,
        """
loaded = library(variable(64 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
print(agree(), code(driver.cuMemAlloc(1)))
check(driver.cuLibraryUnload(loaded))
print(agree(), code(driver.cuLibraryGetKernel(library(variable(64 * MIB + 1)), b"one")), agree())
""",
    ) == [LIMIT, OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 0]


def test_a_context_made_later_is_charged_for_the_libraries_in_use(part: Slice) -> None:
    seen = numbers(
        part,
        """
loaded, unused = library(variable(20 * MIB)), library(variable(50 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
print(agree() // MIB)
second = new_context()
print(launch(handed_out), agree() // MIB)
held = check(driver.cuMemAlloc(4 * MIB + 512))
print(code(create_context()), agree() // MIB)
check(driver.cuMemFree(held))
third = new_context()
print(launch(handed_out), agree() // MIB)
check(driver.cuCtxDestroy(second))
print(agree() // MIB)
check(driver.cuLibraryUnload(loaded))
print(agree() // MIB)
check(driver.cuLibraryUnload(unused))
check(driver.cuCtxDestroy(third))
print(agree() // MIB)
""",
    )

    assert seen == [20, 0, 40, OUT_OF_MEMORY, 44, 0, 60, 40, 0, 0]


def test_a_library_that_fits_into_one_of_two_contexts_is_charged_in_neither(part: Slice) -> None:
    assert numbers(
        part,
        """
second = new_context()
loaded = library(variable(40 * MIB))
print(code(driver.cuLibraryGetKernel(loaded, b"one")), agree())
print(code(driver.cuLibraryGetGlobal(loaded, b"big")), agree())
check(driver.cuCtxDestroy(second))
check(driver.cuCtxSetCurrent(context))
check(driver.cuLibraryGetGlobal(loaded, b"big"))
print(agree() // MIB)
""",
    ) == [OUT_OF_MEMORY, 0, OUT_OF_MEMORY, 0, 40]


def test_what_does_not_fit_is_refused_before_the_driver_is_asked(
    costly_machine: Machine, slice_of: SliceOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")
    part = slice_of(costly_machine, memory_bytes=8 * 1024 * MIB)

    seen = numbers(
        part,
        """
from pathlib import Path
from libvgpu.sim import Machine, faults
machine = Machine.open(Path(os.environ["VGPU_SIM_MACHINE"]))
loaded = library(variable(20 * MIB))
launch(check(driver.cuLibraryGetKernel(loaded, b"one")))
cost = agree() - 20 * MIB
held = check(driver.cuMemAlloc(8192 * MIB - agree() - cost - 20 * MIB + 512))
asked = (lambda: create_context(),
         lambda: driver.cuModuleLoadData(variable(2 * cost)),
         lambda: driver.cuLibraryLoadData(variable(2 * cost), *NONE))
faults.fail_allocations(machine, 0, 1)
print(*(code(call()) for call in asked), machine.device_faults(0).failing_allocations)
check(driver.cuMemFree(held))
print(code(create_context()), machine.device_faults(0).failing_allocations)
agree()
""",
    )

    assert seen == 3 * [OUT_OF_MEMORY] + [1, OUT_OF_MEMORY, 0]


def test_a_launch_on_a_stream_of_another_context_takes_nothing_for_free(part: Slice) -> None:
    seen = numbers(
        part,
        """
second = new_context()
stream = check(driver.cuStreamCreate(0))
check(driver.cuCtxSetCurrent(context))
loaded = library(variable(20 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
early = ledger_bytes()
check(driver.cuLaunchKernel(driver.CUfunction(int(handed_out)), 1, 1, 1, 1, 1, 1, 0, stream, 0, 0))
print(early // MIB, device_bytes() // MIB, ledger_bytes() // MIB)
launch(handed_out)
print(agree() // MIB)
""",
    )

    assert seen == [40, 20, 40, 40]


def test_each_gpu_is_charged_for_its_own_contexts(
    two_gpus: Machine, slice_of: SliceOf, tmp_path: Path
) -> None:
    part = slice_of(two_gpus, memory_bytes=LIMIT)
    part.directory = tmp_path / "slice-of-two"
    limits = tuple(
        DeviceLimit(d.uuid, size)
        for d, size in zip(two_gpus.devices, (LIMIT, LIMIT // 4), strict=True)
    )
    create(part.directory, ContainerLimits("two", Family.VGPU, limits))

    seen = numbers(
        part,
        """
loaded = library(variable(20 * MIB))
launch(check(driver.cuLibraryGetKernel(loaded, b"one")))
print(agree(0) // MIB, agree(1))
print(code(driver.cuDevicePrimaryCtxRetain(1)), agree(0) // MIB, agree(1))
check(driver.cuLibraryUnload(loaded))
open_context(1)
module = check(driver.cuModuleLoadData(variable(16 * MIB)))
print(agree(0), agree(1) // MIB, code(driver.cuModuleLoadData(variable(1))))
check(driver.cuModuleUnload(module))
loaded = library(variable(16 * MIB))
launch(check(driver.cuLibraryGetKernel(loaded, b"one")))
print(ledger_bytes(0) // MIB, agree(1) // MIB)
check(driver.cuLibraryUnload(loaded))
print(agree(0), agree(1))
""",
    )

    assert seen == [20, 0, OUT_OF_MEMORY, 20, 0, 0, 16, OUT_OF_MEMORY, 16, 16, 0, 0]


@pytest.mark.parametrize("nvml", ["nvml", "no nvml"])
@pytest.mark.parametrize("mode", ["LAZY", "EAGER"])
def test_what_cannot_be_read_is_measured(
    part: Slice, nvml: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", mode)
    if nvml == "no nvml":
        (tmp_path / "libcuda.so.1").symlink_to(library_of(part.machine, "libcuda.so.1"))
        environment = part.environment() | {"LD_LIBRARY_PATH": str(tmp_path)}
        monkeypatch.setattr(part, "environment", lambda *, shim=True: environment)

    seen = numbers(
        part,
        f"""
image = {UNREADABLE}
module = check(driver.cuModuleLoadData(image))
print(agree() // MIB)
check(driver.cuModuleUnload(module))
held = check(driver.cuMemAlloc(60 * MIB + 512))
before = agree()
print(code(driver.cuModuleLoadData(image)), agree() - before)
check(driver.cuMemFree(held))
loaded = library(image)
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
print(agree() // MIB)
second = new_context()
launch(handed_out)
print(agree() // MIB)
check(driver.cuCtxDestroy(second))
print(agree() // MIB)
check(driver.cuLibraryUnload(loaded))
print(agree() // MIB)
""",
    )

    assert seen == [4, OUT_OF_MEMORY, 0, 4, 8, 4, 0]


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
    assert held == 0


def test_threads_that_load_and_make_contexts_at_once_leave_exact_books(part: Slice) -> None:
    assert numbers(
        part,
        """
def churn(number):
    for round in range(12):
        loaded = library(variable(MIB))
        check(driver.cuCtxSetCurrent(context))
        mine = new_context() if number % 2 else None
        handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
        check(driver.cuCtxSetCurrent(mine or context))
        check(driver.cuModuleLoadData(variable(MIB))) if mine else None
        launch(handed_out)
        assert ledger_bytes() >= MIB
        if round % 2: check(driver.cuLibraryUnload(loaded))
        if mine: check(driver.cuCtxDestroy(mine))
        if not round % 2: check(driver.cuLibraryUnload(loaded))
threads = [threading.Thread(target=churn, args=(i,)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(agree())
""",
    ) == [0]


def test_a_forked_child_leaves_its_parents_libraries_alone(part: Slice) -> None:
    assert numbers(
        part,
        """
loaded = library(variable(20 * MIB))
handed_out = check(driver.cuLibraryGetKernel(loaded, b"one"))
launch(handed_out)
child = os.fork()
if child == 0:
    codes = (driver.cuLibraryGetKernel(loaded, b"one"), driver.cuModuleLoadData(variable(1)),
             driver.cuLibraryUnload(loaded), create_context())
    os._exit(0 if all(code(answer) for answer in codes) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), agree() // MIB)
check(driver.cuLibraryUnload(loaded))
print(agree())
""",
    ) == [0, 20, 0]
