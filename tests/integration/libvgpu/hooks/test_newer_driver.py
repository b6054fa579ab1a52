"""What a driver hands out and hooks.def does not know is said, counted, and shown by doctor."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from libvgpu.region import ProcessUsage
from libvgpu.sim import Machine
from libvgpu.sim.spec import DRIVER_VERSIONS
from support import Compile
from support.ended import run_to_end
from support.lines import expect, next_line, start_listening, tell
from support.shim.slices import Slice, SliceOf
from support.sim.releases import driver_of
from support.waiting import PATIENCE_S

#: Prints what each look-up finds as the name of its library, and waits for a line where told to.
PROGRAM = """
import ctypes, json, sys
libc, cuda = ctypes.CDLL(None), ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
libc.dlsym.restype = libc.dlopen.restype = ctypes.c_void_p
libc.dlsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
class Found(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("rest", ctypes.c_void_p * 3)]
libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(Found)]
places = {"handle": libc.dlopen(b"libcuda.so.1", 1), "default": None, "next": 2**64 - 1,
          "libc": libc.dlopen(b"libc.so.6", 1)}
for step in json.loads(sys.argv[1]):
    way, name, *version = [*step, ''][:max(2, len(step))]
    address = ctypes.c_void_p()
    if way == "use":
        pointer, context = ctypes.c_uint64(), ctypes.c_void_p()
        assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
        assert cuda.cuCtxSetCurrent(context) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 21)) == 0
        print("used", flush=True)
        continue
    if way == "wait":
        print("waits", flush=True)
        sys.stdin.readline()
        continue
    if way == "ask":
        cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(address), *version,
                                 ctypes.c_uint64(0), ctypes.byref(ctypes.c_int()))
        address = address.value
    else:
        address = libc.dlsym(places[way], name.encode())
    found = Found()
    known = address and libc.dladdr(address, ctypes.byref(found))
    print(found.path.decode().rsplit("/", 1)[-1] if known else None, flush=True)
"""
FUTURE = "libvgpu: the driver answers {} with {}; it passes and is not held to the slice"
UNKNOWN = "an entry point that this build does not know"
MOVED = "another version of it than this build knows"
NEWER = 14000
DRIVER, SHIM = "libcuda.so.1", "libvgpu.so"


@dataclass(frozen=True)
class Newer:
    """A slice on a driver that is newer than this build."""

    part: Slice
    folder: Path

    def start(self, *steps: tuple[str | int, ...]) -> "subprocess.Popen[str]":
        environment = self.part.environment()
        environment["LD_LIBRARY_PATH"] = f"{self.folder}:{environment['LD_LIBRARY_PATH']}"
        process = start_listening([sys.executable, "-c", PROGRAM, json.dumps(steps)], environment)
        self.part.processes.append(process)
        return process

    def run(self, *steps: tuple[str | int, ...]) -> tuple[list[str], list[str]]:
        """Returns where what was looked up lies, and what was said on stderr."""
        process = self.start(*steps)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, stderr
        return stdout.split(), stderr.splitlines()

    def process(self) -> ProcessUsage:
        (process,) = self.part.usage().processes
        return process


@pytest.fixture
def newer(compile_program: Compile, machine: Machine, slice_of: SliceOf, tmp_path: Path) -> Newer:
    if machine.driver_version < DRIVER_VERSIONS["12.4"]:
        pytest.skip("asks cuGetProcAddress_v2")
    part = slice_of(machine, memory_bytes=1 << 30)
    simulated = driver_of(part.environment())
    shared = ("-shared", "-fPIC")
    # The loader takes a second library of one name only where it is needed by its path.
    named = compile_program(
        "newer_driver.c", flags=(*shared, "-DNAME_ALONE", f"-Wl,-soname,{simulated}")
    )
    library = compile_program(
        "newer_driver.c",
        "-Wl,--no-as-needed",
        str(named),
        flags=(*shared, f'-DSIMULATED="{simulated}"', f"-Wl,-soname,{DRIVER}"),
    )
    folder = tmp_path / "newer"
    folder.mkdir()
    (folder / DRIVER).symlink_to(library)
    return Newer(part, folder)


@pytest.mark.parametrize("way", ["handle", "default", "next", "ask"])
def test_a_name_without_a_row_is_said_once_and_passes(newer: Newer, way: str) -> None:
    step = (way, "cuFutureCall", *((NEWER,) if way == "ask" else ()))

    found, said = newer.run(step, step, ("use",))

    assert said == [FUTURE.format("cuFutureCall", UNKNOWN)]
    where = "None" if way == "next" else found[0]  # Python itself comes behind nobody
    assert found == [where, where, "used"]
    assert way == "next" or "newer_driver" in where or where == DRIVER


def test_a_function_that_only_cugetprocaddress_gives_is_said_too(newer: Newer) -> None:
    _, said = newer.run(("ask", "cuFutureHidden", NEWER))

    assert said == [FUTURE.format("cuFutureHidden", UNKNOWN)]


def test_a_hooked_name_at_another_address_is_said_once_and_passes(newer: Newer) -> None:
    new = ("ask", "cuMemAlloc", NEWER)

    found, said = newer.run(new, ("ask", "cuMemAlloc", 12000), new)

    assert said == [FUTURE.format("cuMemAlloc", MOVED)]
    assert found == [DRIVER, SHIM, DRIVER]


def test_only_what_the_driver_answers_counts(newer: Newer) -> None:
    _, said = newer.run(
        ("handle", "cuNoSuchCall"),
        ("next", "cuNoSuchCall"),
        ("libc", "cuFutureCall"),
        ("ask", "cuNoSuchCall", 12000),
        ("ask", "cuDeviceGetCount", 12000),
        ("handle", "cuDeviceGetCount"),
        ("ask", "cuMemcpyHtoD", 12000),
        ("use",),
    )

    assert said == []


def test_they_are_counted_in_the_slot_before_there_is_one_and_after(newer: Newer) -> None:
    process = newer.start(
        ("handle", "cuFutureCall"),
        ("use",),
        ("wait",),
        ("ask", "cuFutureHidden", NEWER),
        ("ask", "cuMemAlloc", NEWER),
        ("wait",),
    )

    while next_line(process) != "waits":
        assert process.poll() is None
    before = newer.process()
    tell(process)
    while next_line(process) != "waits":
        assert process.poll() is None
    after = newer.process()

    assert (before.unknown_entries, before.moved_entries) == (1, 0)
    assert (after.unknown_entries, after.moved_entries) == (2, 1)
    assert before.noted_entry == after.noted_entry == "cuFutureCall"
    process.communicate("\n", timeout=PATIENCE_S)
    heir = newer.start(("use",), ("wait",))
    expect(heir, "used")
    assert (newer.process().unknown_entries, newer.process().noted_entry) == (0, "")


def test_doctor_shows_them_while_the_process_runs(newer: Newer, tmp_path: Path) -> None:
    directories = [f"--{each}-dir={tmp_path / each}" for each in ("run", "state", "kubelet")]
    environment = newer.part.environment(shim=False) | {"HOME": str(tmp_path)}
    environment["LD_LIBRARY_PATH"] = f"{newer.folder}:{environment['LD_LIBRARY_PATH']}"
    vgpuctl = [sys.executable, "-m", "vgpuctl"]
    steps = json.dumps([("handle", "cuFutureCall"), ("use",), ("wait",)])
    process = start_listening(
        [*vgpuctl, "run", directories[0], "--", sys.executable, "-c", PROGRAM, steps],
        environment,
        stderr=None,
    )
    newer.part.processes.append(process)
    while next_line(process) != "waits":
        assert process.poll() is None

    asked = run_to_end([*vgpuctl, "doctor", *directories, "-o", "json"], env=environment)

    (finding,) = [each for each in json.loads(asked.stdout) if each["check"] == "entry-points"]
    assert finding["level"] == "warn"
    assert "1 processes of 1 slices" in finding["message"]
    assert "cuFutureCall" in finding["message"]
    process.communicate("\n", timeout=PATIENCE_S)
