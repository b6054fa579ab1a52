"""`vgpuctl sim`: simulated machines by themselves, without a slice.

A named machine (``SPEC@NAME``) stays until it is removed; an unnamed one goes with the command it
was made for. ``sim list -o json`` gives a list of objects with the keys ``name`` (null for an
unnamed one), ``directory`` and ``gpus``, a list of ``index, uuid, profile, product,
memory_total_bytes, memory_used_bytes, clients`` (processes). All figures are simulated.
"""

import os

import click

from libvgpu.errors import SimulationError, UsageError
from libvgpu.sim import machine as sim_machine
from libvgpu.sim.spec import parse_spec
from libvgpu.sizes import format_size

from .. import gpus as gpu_sources
from ..foreground import require_command, run_in_foreground, signals_held
from ..options import output_option
from ..render import Column, Row, print_listing


@click.group()
def sim() -> None:
    """Simulated GPUs: run on them, list them, remove them."""


@sim.command("run", context_settings={"allow_interspersed_args": False})
@click.argument("spec_text", metavar="SPEC")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def sim_run(spec_text: str, command: tuple[str, ...]) -> int:
    """Run COMMAND on the simulated machine SPEC, without any limit."""
    spec = parse_spec(spec_text)
    if command[:1] == ("--",):  # behind SPEC, click leaves it to us
        command = command[1:]
    if not command:
        raise UsageError(
            f"no command to run: give it behind --, for example vgpuctl sim run {spec_text} -- "
            "python train.py"
        )
    require_command(command, gpu_sources.search_path(simulated=True))
    with signals_held(), gpu_sources.acquired(spec) as machine:
        return run_in_foreground(command, machine.environment(os.environ))


def _machine_row(machine: sim_machine.Machine) -> Row:
    books = {book.uuid: book for book in machine.books()}
    return {
        "name": gpu_sources.machine_name(machine),
        "directory": str(machine.directory),
        "gpus": [
            {
                "index": device.index,
                "uuid": device.uuid,
                "profile": device.profile.name,
                "product": device.profile.product,
                "memory_total_bytes": device.profile.memory_bytes,
                "memory_used_bytes": books[device.uuid].memory_used_bytes,
                "clients": sum(client.alive for client in books[device.uuid].clients),
            }
            for device in machine.devices
        ],
    }


def _gpus(row: Row) -> list[dict[str, object]]:
    gpus = row["gpus"]
    assert isinstance(gpus, list)
    return gpus


def _profiles(row: Row) -> str:
    names = [str(gpu["profile"]) for gpu in _gpus(row)]
    return ",".join(
        f"{name}*{names.count(name)}" if names.count(name) > 1 else name
        for name in dict.fromkeys(names)
    )


def _sum(row: Row, key: str) -> int:
    return sum(int(str(gpu[key])) for gpu in _gpus(row))


_COLUMNS = (
    Column("SIMULATED MACHINE", lambda row: f"@{row['name']}" if row["name"] else "(unnamed)"),
    Column("GPUS", _profiles),
    Column("MEMORY", lambda row: f"{format_size(_sum(row, 'memory_used_bytes'))} / "
           f"{format_size(_sum(row, 'memory_total_bytes'))}", right=True),
    Column("PROCESSES", lambda row: str(_sum(row, "clients")), right=True),
    Column("DIRECTORY", lambda row: str(row["directory"])),
)  # fmt: skip


@sim.command("list")
@output_option
def sim_list(output: str) -> None:
    """List this user's simulated machines; all figures are simulated."""
    rows = [_machine_row(machine) for machine in gpu_sources.simulated_machines()]
    print_listing(rows, _COLUMNS, output, "no simulated machines")


@sim.command("rm")
@click.argument("name")
def sim_rm(name: str) -> None:
    """Remove the simulated machine NAME; refused while processes use it."""
    machines = {
        named: machine
        for machine in gpu_sources.simulated_machines()
        if (named := gpu_sources.machine_name(machine)) is not None
    }
    machine = machines.get(name.removeprefix("@"))
    if machine is None:
        there = ", ".join(machines) or "none"
        raise SimulationError(f"there is no simulated machine {name!r}; there are: {there}")
    using = [client.pid for book in machine.books() for client in book.clients if client.alive]
    if using:
        pids = ", ".join(str(pid) for pid in sorted(set(using)))
        raise SimulationError(f"simulated machine {name!r} is in use by process {pids}")
    machine.remove()
