"""The mps family: MPS is told what `limits` says, and alone holds the share."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from libvgpu.artifacts import shim_path
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family
from libvgpu.region import create, read_limits, read_usage, write_limits
from libvgpu.sim import Machine
from support.ended import printed
from support.shim.slices import Slice
from support.shim.talker import Talk
from support.sim.mps_control import Control
from support.sim.programs import PRELUDE

MIB, GIB = 1 << 20, 1 << 30
PERCENT = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
PINNED = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
MOUNTED_PIPE = "/run/vgpu/mps"

# The variables as the C library has them, and where: setenv gives a variable another place.
VARIABLES = f"""
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_void_p
def variables():
    places = {{name: libc.getenv(name.encode()) for name in ({PERCENT!r}, {PINNED!r}, {PIPE!r})}}
    values = {{n: p and ctypes.string_at(p).decode() for n, p in places.items()}}
    return values, places
"""
INIT = (
    VARIABLES
    + """
_, before = variables()
check(cuda.cuInit(0))
values, after = variables()
say(values=values, was_set=sorted(name for name in after if after[name] != before[name]))
"""
)
FILL = """
open_context()
pieces, _ = allocate_until_refused(64 << 20)
mps = check(cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0))
say(pieces=len(pieces), mps=mps)
"""


def mps_slice(machine: Machine, directory: Path, pipe: str, *pinned_bytes: int) -> Slice:
    """Makes a slice under MPS at 30 %; the ledger allows more than MPS does."""
    devices = tuple(
        DeviceLimit(
            device.uuid,
            4 * GIB,
            compute_mode=ComputeMode.OFF,
            core_percent=30,
            mps_thread_percentage=30,
            mps_pinned_bytes=each,
            mps_pipe_directory=pipe,
        )
        for device, each in zip(machine.devices, pinned_bytes, strict=False)
    )
    create(directory, ContainerLimits("mps", Family.MPS, devices))
    return Slice(machine, directory)


def run(
    part: Slice,
    code: str,
    variables: Mapping[str, str] | None = None,
    prefix: tuple[str, ...] = (),
) -> Any:
    """Returns what a program under the slice said that was started with these variables."""
    inherited = {k: v for k, v in part.environment().items() if not k.startswith("CUDA_")}
    said = printed(
        *prefix, sys.executable, "-c", PRELUDE + code, env={**inherited, **(variables or {})}
    )
    return json.loads(said)


@pytest.fixture
def control(machine: Machine, tmp_path: Path) -> Iterator[Control]:
    made = Control(machine, tmp_path / "mps")
    made.directory.mkdir()
    with made.running():
        yield made


@pytest.fixture
def part(control: Control, tmp_path: Path) -> Slice:
    return mps_slice(control.machine, tmp_path / "slice", control.env()[PIPE], GIB)


def test_a_raised_environment_is_put_back_before_mps_reads_it(
    part: Slice, control: Control
) -> None:
    raised = {**control.env(), PERCENT: "100", PINNED: "0=64G"}

    said = run(part, INIT, raised)

    assert said["values"] == {PERCENT: "30", PINNED: "0=1024M", PIPE: raised[PIPE]}
    assert said["was_set"] == [PERCENT, PINNED]
    # and MPS itself, not the ledger (which allows 4 GiB), ends its memory there
    assert run(part, FILL, raised) == {"pieces": GIB // (64 * MIB), "mps": 1}


def test_a_program_that_deletes_the_variables_is_held_all_the_same(
    part: Slice, control: Control
) -> None:
    said = run(part, INIT)

    assert said["values"] == {PERCENT: "30", PINNED: "0=1024M", PIPE: control.env()[PIPE]}
    assert run(part, FILL) == {"pieces": GIB // (64 * MIB), "mps": 1}


def test_in_family_vgpu_mps_is_told_where_its_server_is_and_nothing_else(
    control: Control, tmp_path: Path
) -> None:
    pipe = control.env()[PIPE]
    limit = DeviceLimit(
        control.machine.devices[0].uuid, GIB, core_percent=30, mps_pipe_directory=pipe
    )
    create(tmp_path / "vgpu", ContainerLimits("vgpu", Family.VGPU, (limit,)))
    part = Slice(control.machine, tmp_path / "vgpu")

    said = run(part, INIT)

    assert said["values"] == {PERCENT: None, PINNED: None, PIPE: pipe}
    assert said["was_set"] == [PIPE]
    assert run(part, FILL) == {"pieces": GIB // (64 * MIB), "mps": 1}  # the ledger's limit


def test_an_environment_that_says_the_same_is_not_touched(part: Slice, control: Control) -> None:
    said = run(part, INIT, {**control.env(), PERCENT: "30", PINNED: "0=1024M"})

    assert said["was_set"] == []


def test_a_program_that_inits_again_sees_no_further_setenv(part: Slice) -> None:
    said = run(part, "cuda.cuInit(0)" + INIT)

    assert said["was_set"] == []


def test_what_the_slice_does_not_say_stays(machine: Machine, tmp_path: Path) -> None:
    part = mps_slice(machine, tmp_path / "slice", "", 0)

    said = run(part, INIT, {PINNED: "0=5M", PIPE: "/own"})

    assert said["values"] == {PERCENT: "30", PINNED: "0=5M", PIPE: "/own"}


def test_what_a_process_began_with_is_told_to_the_host(
    part: Slice, control: Control, talk: Talk
) -> None:
    first = talk(part, **control.env()).holds(MIB)
    limits = read_limits(part.directory).limits
    raised = replace(limits.devices[0], mps_thread_percentage=60, mps_pinned_bytes=2 * GIB)
    write_limits(part.directory, replace(limits, devices=(raised,)))
    first.ask("init")  # a second cuInit changes nothing
    talk(part, **control.env()).holds(MIB)

    processes = read_usage(part.directory).processes

    assert [(p.mps_thread_percentage, p.mps_pinned_mib) for p in processes] == [
        (30, 1024),
        (60, 2048),
    ]


@pytest.mark.parametrize(
    ("pinned_bytes", "value"),
    [
        ((GIB, 512 * MIB), "0=1024M,1=512M"),
        ((0, 512 * MIB), "1=512M"),
        ((1, 2 * MIB - 1), "0=1M,1=1M"),  # never 0M, which might mean that there is no limit
    ],
)
def test_every_device_has_its_own_pinned_limit(
    two_gpus: Machine, tmp_path: Path, pinned_bytes: tuple[int, ...], value: str
) -> None:
    part = mps_slice(two_gpus, tmp_path / "slice", "", *pinned_bytes)

    assert run(part, INIT)["values"][PINNED] == value


def test_the_vgpu_family_has_nothing_set(machine: Machine, slice_of: Callable[..., Slice]) -> None:
    part = slice_of(machine, memory_bytes=GIB, core_percent=30)

    said = run(part, INIT, {PERCENT: "100"})

    assert said["values"] == {PERCENT: "100", PINNED: None, PIPE: None}


# As the container runtime mounts it: the pipe directory, too, is the slice's word.
MANAGED = """
mount -t tmpfs none /run && mkdir -p /run/vgpu/lib && cp "$SHIM" /run/vgpu/lib/libvgpu.so || exit 9
cp -R "$FILES"/* /run/vgpu || exit 9
LD_PRELOAD=/run/vgpu/lib/libvgpu.so exec "$0" "$@"
"""


@pytest.mark.root
def test_in_a_managed_container_the_pipe_directory_is_the_slices(
    machine: Machine, tmp_path: Path
) -> None:
    mounting = ("unshare", "-m", "mount", "-t", "tmpfs", "none", "/run")
    if subprocess.run(mounting, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    part = mps_slice(machine, tmp_path / "slice", MOUNTED_PIPE, GIB)

    said = run(
        part,
        INIT,
        {
            "LD_PRELOAD": "",
            "SHIM": str(shim_path()),
            "FILES": str(part.directory),
            PIPE: "/tmp/my-own-daemon",
        },
        prefix=("unshare", "-m", "sh", "-c", MANAGED),
    )

    assert said["values"][PIPE] == MOUNTED_PIPE


SPIN = """
open_context()
spinner = Spinner(2_000_000)
for _ in range(40):  # without a wait: a slow machine asks for all of the GPU, too
    spinner.launch()
spinner.wait()
say(done=True); sys.stdin.readline()
"""


@pytest.mark.parametrize(("family", "is_held"), [(Family.MPS, False), (Family.VGPU, True)])
@pytest.mark.parametrize("mode", [ComputeMode.STRICT, ComputeMode.ELASTIC])
def test_mps_is_never_held_in_time_whatever_the_limits_say(
    machine: Machine, tmp_path: Path, family: Family, mode: ComputeMode, is_held: bool
) -> None:
    limit = DeviceLimit(machine.devices[0].uuid, GIB, core_percent=30, compute_mode=mode)
    create(tmp_path / "slice", ContainerLimits("held", family, (limit,)))
    part = Slice(machine, tmp_path / "slice")
    process = part.start(PRELUDE + SPIN)
    try:
        assert process.stdout is not None and process.stdout.readline()
        held_ns = sum(p.devices[0].held_ns for p in part.usage().processes)
    finally:
        part.close()

    assert (held_ns > 0) == is_held
