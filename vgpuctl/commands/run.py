"""`vgpuctl run`: any program under a slice of a GPU, without Kubernetes.

The slice is a directory of the same form as a container's (`limits`, `usage`, `ring`), the shim
comes by LD_PRELOAD, and the program sees the chosen GPUs as its devices 0, 1, … in the order they
were named. It ends with the program: directory and unnamed simulated machine are removed whatever
happened, and what a killed `vgpuctl run` left is swept by the next one.

Slices of one run directory share a GPU fairly: one of their `vgpuctl run` has the GPU's lock and
runs its arbiter, and when it ends the next one takes over. What they are promised never sums to
more than the GPU, neither compute nor memory. One that names its memory alone is promised no
compute and has what the others leave over.

With ``--mps`` they are also clients of one MPS server (`mps_server`): the same shares, held in the
same way, without context switches.

All words are checked before anything is made. The slice protects against accident, not malice:
the program's user owns the files.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import click

from libvgpu import allocation_dirs, artifacts, ownership, region
from libvgpu.arbiter_set import LOOK_EVERY_S, ArbiterSet
from libvgpu.arbitration import Arbiter, hold_gpu
from libvgpu.errors import AllocationRefused, UsageError
from libvgpu.limits import ComputeMode, ContainerLimits, Family
from libvgpu.sim.spec import MachineSpec, parse_spec
from vgpuctl import gpu_choice as gpu_sources

from ..examples import examples
from ..options import chosen_run_dir, compute_option, fast_option, run_dir_option
from ..run import core_sum, memory_sum, mps_server
from ..run import names as run_names
from ..run import sizes as run_sizes
from ..run.environment import parse_environment, slice_environment
from ..run.foreground import require_command, run_in_foreground, signals_held
from ..run.requests import GpuCandidate, GpuRequest, limits_for, parse_requests, require_working
from ..run.summarised_run import SummarisedRun


def _refuse_inside_a_slice(environment: Mapping[str, str]) -> None:
    # The inner slice would take the place of the outer one, and could be larger.
    directory = environment.get("VGPU_DIR")
    if directory and (Path(directory) / "limits").exists():
        raise AllocationRefused(
            f"this process is in a slice already (VGPU_DIR={directory}), which a second one "
            "would replace",
            hint="change the outer slice instead, or run this outside of it",
        )


@contextlib.contextmanager
def _gpus(
    spec: MachineSpec | None, requests: tuple[GpuRequest, ...], environment: Mapping[str, str]
) -> Iterator[tuple[tuple[GpuCandidate, ...], Mapping[str, str]]]:
    """Gives the GPUs to choose from and the environment in which a program finds them."""
    if spec is None:
        there, sick = gpu_sources.driver_listing()
        require_working(requests, there, sick)
        yield there, environment
        return
    if gpu_sources.is_new(spec):
        # What it cannot serve is refused before it is made: a named machine would stay behind.
        limits_for(requests, gpu_sources.gpus_of_spec(spec), ComputeMode.STRICT)
    with gpu_sources.acquired(spec) as machine:
        yield gpu_sources.gpus_of_machine(machine), machine.environment(environment)


@click.command(
    context_settings={"allow_interspersed_args": False},
    short_help="Run a command under a slice of a GPU.",
    epilog=examples(
        "vgpuctl run --simulate h100 --memory 1GiB --core 50 -- python train.py",
        "vgpuctl run --gpu 1 --memory 8GiB --core 25 --name train --summary -- ./train",
    ),
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="INDEX|INDEX:MIG|UUID",
    help="Which GPU, or MIG device of one; repeat it for several [default: 0].",
)
@click.option(
    "--memory",
    "memories",
    multiple=True,
    metavar="SIZE",
    help="Memory limit, for example 8GiB or 512Mi [default: what other slices leave of the GPU's].",
)
@click.option(
    "--core",
    "cores",
    multiple=True,
    metavar="PERCENT",
    help="Share of the GPU's compute, 1 to 100 [default: what other slices leave over; "
    "without --memory 100, not capped].",
)
@compute_option(
    "elastic may also use what nobody else wants; off holds memory alone "
    "[default: strict for what --core says]."
)
@click.option(
    "--mps",
    is_flag=True,
    help="Be a client of the GPU's MPS server, with other runs: no context switches between them, "
    "and a fault of one ends the work of all.",
)
@click.option(
    "--simulate",
    metavar="SPEC",
    help="Run on a simulated GPU: PROFILE[*N][/mig=KIND[*N]…][,PROFILE…][,driver=RELEASE][/cudaX.Y]"
    "[@NAME], for example h100, a100-80g*2/cuda12.4@box, h100,driver=535.54 or "
    "a100-40g/mig=1g.5gb*7.",
)
@fast_option
@click.option("--name", metavar="NAME", help="What vgpuctl ps, top, describe and set call it by.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a variable of the command's environment; repeat it for several.",
)
@click.option(
    "--summary", is_flag=True, help="Say on stderr at the end what the command used of each GPU."
)
@run_dir_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(  # noqa: PLR0913 - a parameter for each option
    gpus: tuple[str, ...],
    memories: tuple[str, ...],
    cores: tuple[str, ...],
    compute: ComputeMode | None,
    mps: bool,
    simulate: str | None,
    fast: bool,
    name: str | None,
    variables: tuple[str, ...],
    summary: bool,
    run_dir: Path | None,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND under a slice of a GPU and exit with its status."""
    requests = parse_requests(gpus, memories, cores)
    if compute is ComputeMode.OFF and cores:
        raise UsageError(
            f"--core {cores[0]} does nothing with --compute off, which holds no share: "
            "leave one of the two out"
        )
    if compute is ComputeMode.STRICT and any(each.core_percent is None for each in requests):
        raise UsageError(
            "--compute strict holds a share, and without --core there is none: give --core "
            "PERCENT, or leave --compute out to have what other slices leave over"
        )
    if fast and simulate is None:
        raise UsageError("--fast is for simulated GPUs: give --simulate SPEC with it")
    spec = parse_spec(simulate, fast=fast) if simulate is not None else None
    name = run_names.parse_name(name) if name is not None else ""
    environment = {**os.environ, **parse_environment(variables)}
    if not command:
        raise UsageError(
            "no command to run: give it after --, for example "
            "vgpuctl run --memory 1GiB -- python train.py"
        )
    _refuse_inside_a_slice(os.environ)
    shim = artifacts.shim_path()
    require_command(command, gpu_sources.search_path(environment, spec is not None))
    with contextlib.ExitStack() as made:
        made.enter_context(signals_held())
        there, base = made.enter_context(_gpus(spec, requests, environment))
        kept_in = chosen_run_dir(run_dir).absolute()  # the program may change its directory
        there = run_sizes.with_sizes(there, kept_in, mps)
        devices = limits_for(requests, there, ComputeMode.STRICT if compute is None else compute)
        uuids = [device.uuid for device in devices]
        ownership.sweep(kept_in)
        mps_server.sweep(kept_in)
        if mps:
            pipe = made.enter_context(
                mps_server.served(kept_in, uuids, base, simulated=spec is not None)
            )
            devices = tuple(replace(device, mps_pipe_directory=pipe) for device in devices)
        allocation_id, directory = made.enter_context(ownership.owned_directory(kept_in))
        candidates = {gpu.uuid: gpu for gpu in there}
        made.callback(run_sizes.note, directory, uuids, candidates, kept_in, mps)
        with core_sum.admitting(kept_in):
            if name:
                run_names.require_free_name(kept_in, name)
            core_sum.require_free_share(kept_in, devices)
            whole_bytes = {gpu.uuid: gpu.memory_bytes for gpu in there}
            devices = memory_sum.fitted(kept_in, requests, devices, whole_bytes)
            limits = ContainerLimits(allocation_id, Family.VGPU, devices)
            _make_slice(directory, limits, command, name)
        arbiters = ArbiterSet(kept_in, uuids, make=Arbiter, hold=hold_gpu)
        made.callback(arbiters.stop)
        environment = slice_environment(base, directory, limits, shim)
        if not summary:
            return run_in_foreground(command, environment, arbiters, LOOK_EVERY_S)
        names = [f"{candidates[u].name} ({u}, {candidates[u].product})" for u in uuids]
        said = SummarisedRun(name, allocation_id, directory, names, devices)
        return said.run(command, environment, arbiters, LOOK_EVERY_S)


def _make_slice(
    directory: Path, limits: ContainerLimits, command: tuple[str, ...], name: str
) -> None:
    region.create(directory, limits, device_capacity=len(limits.devices))
    allocation_dirs.write_meta(
        directory,
        allocation_dirs.AllocationMeta(
            allocation_id=limits.allocation_id,
            family=limits.family.name.lower(),
            source=ownership.SOURCE,
            created_at=time.time(),
            command=command,
            owner_pid=os.getpid(),
            name=name,
        ),
    )
