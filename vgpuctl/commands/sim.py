"""`vgpuctl sim`: simulated machines by themselves, without a slice.

A named machine (``SPEC@NAME``) stays until it is removed; an unnamed one goes with the command it
was made for. ``sim list -o json`` gives a list of objects (`vgpuctl.output.simulated.SimListRow`).
All figures are simulated.
"""

import os
from dataclasses import asdict

import click

from libvgpu.errors import SimulationError, UsageError
from libvgpu.sim import named
from libvgpu.sim.books import DeviceBooks
from libvgpu.sim.machine import Machine
from libvgpu.sim.mig import format_layout
from libvgpu.sim.spec import format_driver_version, parse_spec
from libvgpu.sizes import format_size
from vgpuctl import gpu_choice as gpu_sources

from ..examples import examples
from ..options import fast_option, output_option
from ..render import OUTPUT_VERSION, Column, Row, print_listing
from ..run.foreground import require_command, run_in_foreground, signals_held
from .sim_inject import inject, injected_words


@click.group(
    short_help="Simulated GPUs: run on them, list them, have them fail.",
    epilog=examples(
        "vgpuctl sim run h100@box -- python train.py", "vgpuctl sim list", "vgpuctl sim rm box"
    ),
)
def sim() -> None:
    """Simulated GPUs: run on them, list them, have them fail, remove them."""


sim.add_command(inject)


@sim.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "vgpuctl sim run h100 -- python train.py",
        "vgpuctl sim run --fast a100-40g/mig=3g.20gb+1g.5gb*4@box -- nvidia-smi",
    ),
)
@fast_option
@click.argument("spec_text", metavar="SPEC")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def sim_run(fast: bool, spec_text: str, command: tuple[str, ...]) -> int:
    """Run COMMAND on the simulated machine SPEC, without any limit.

    SPEC is PROFILE[*N][/mig=KIND[*N]...][,PROFILE...][,driver=RELEASE][/cudaX.Y][@NAME], for
    example h100, a100-80g*2/cuda12.4@box, h100,driver=535.54 or a100-40g/mig=3g.20gb+1g.5gb*4. A
    profile of your own is a YAML file: ./my.yaml
    """
    spec = parse_spec(spec_text, fast=fast)
    if command[:1] == ("--",):  # behind SPEC, click leaves it to us
        command = command[1:]
    if not command:
        raise UsageError(
            f"no command to run: give it after --, for example vgpuctl sim run {spec_text} -- "
            "python train.py"
        )
    require_command(command, gpu_sources.search_path(os.environ, simulated=True))
    with signals_held(), gpu_sources.acquired(spec) as machine:
        return run_in_foreground(command, machine.environment(os.environ))


def _machine_row(machine: Machine) -> Row:
    books: dict[int, list[DeviceBooks]] = {device.index: [] for device in machine.devices}
    gpu_of = {device.uuid: device.index for device in machine.devices}
    gpu_of |= {part.uuid: part.gpu or 0 for part in machine.instances}
    for book in machine.books():  # of its MIG instances, too
        if book.uuid in gpu_of:  # not of one made in between
            books[gpu_of[book.uuid]].append(book)
    return {
        "version": OUTPUT_VERSION,
        "name": named.name_of(machine),
        "directory": str(machine.directory),
        "cuda_version": format_driver_version(machine.driver_version),
        "call_faults": asdict(machine.call_faults()),
        "gpus": [
            {
                "index": device.index,
                "uuid": device.uuid,
                "profile": device.profile.name,
                "mig": _mig(machine, device.index),
                "calibration": device.profile.calibration.name,
                "product": device.profile.product,
                "memory_total_bytes": device.profile.memory_bytes,
                "memory_used_bytes": sum(b.memory_used_bytes for b in books[device.index]),
                "clients": sum(c.alive for b in books[device.index] for c in b.clients),
                "faults": asdict(machine.device_faults(device.index)),
                "ecc_corrected": machine.ecc_errors(device.index)[0],
                "ecc_uncorrected": machine.ecc_errors(device.index)[1],
            }
            for device in machine.devices
        ],
    }


def _mig(machine: Machine, gpu: int) -> str | None:
    """Returns what a GPU is cut into; None where it is not in MIG mode."""
    layout = machine.mig_layout(gpu)
    return None if layout is None else format_layout(layout)


def _gpus(row: Row) -> list[dict[str, object]]:
    gpus = row["gpus"]
    assert isinstance(gpus, list)
    return gpus


def _profiles(row: Row) -> str:
    names = [
        str(gpu["profile"]) if gpu["mig"] is None else f"{gpu['profile']}/mig={gpu['mig']}"
        for gpu in _gpus(row)
    ]
    return ",".join(
        f"{name}*{names.count(name)}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    )


def _sum(row: Row, key: str) -> int:
    return sum(int(str(gpu[key])) for gpu in _gpus(row))


_COLUMNS = (
    Column("SIMULATED MACHINE", lambda row: f"@{row['name']}" if row["name"] else "(unnamed)"),
    Column("GPUS", _profiles),
    Column("CUDA", lambda row: str(row["cuda_version"]), rank=3),
    Column(
        "MEMORY",
        lambda row: (
            f"{format_size(_sum(row, 'memory_used_bytes'))} / "
            f"{format_size(_sum(row, 'memory_total_bytes'))}"
        ),
        right=True,
        rank=1,
    ),
    Column("PROCESSES", lambda row: str(_sum(row, "clients")), right=True, rank=1),
    Column("INJECTED", lambda row: injected_words(row) or "-", rank=2),
    Column("DIRECTORY", lambda row: str(row["directory"]), rank=4),
)


@sim.command("list", epilog=examples("vgpuctl sim list", "vgpuctl sim list -o json"))
@output_option
def sim_list(output: str) -> None:
    """List this user's simulated machines; all figures are simulated."""
    unusable: list[SimulationError] = []
    rows = [_machine_row(machine) for machine in gpu_sources.simulated_machines(unusable)]
    print_listing(rows, _COLUMNS, output, "no simulated machines")
    for error in unusable:
        hint = f" ({error.hint})" if error.hint else ""
        click.echo(f"vgpuctl: left out: {error.message}{hint}", err=True)


@sim.command("rm", epilog=examples("vgpuctl sim rm box"))
@click.argument("name")
def sim_rm(name: str) -> None:
    """Remove the simulated machine NAME; refused while processes use it."""
    named.remove(name)
