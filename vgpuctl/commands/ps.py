"""`vgpuctl ps`: who holds which slice and what they really use.

One row per process and GPU; a slice without a process, or a GPU no process has touched, still
shows as one row. ``-o json`` gives a list of objects with these keys (null: not known):

``version, allocation, source`` (``kubelet`` or ``run``), ``namespace, pod, container, name`` (of a
run; the table has it instead of the command), ``command`` (a list), ``created_at`` (seconds since
1970), ``family, state`` (``running``, ``idle``, ``abandoned``, ``damaged``, ``busy``), ``problem``
(what is damaged or busy), ``gpu_uuid, pid`` (as the container counts), ``process`` (its name),
``shared_memory`` (true: no process but memory that several of them hold, named by its maker),
``ended`` (true: the process has ended, and children that it forked keep its memory in the GPU),
``memory_used_bytes, memory_peak_bytes`` (of the process; of the container where ``pid`` is null),
``container_memory_used_bytes, memory_limit_bytes, memory_unaccounted_bytes`` (of the limit: what
the agent measured beyond the ledger and charges), ``core_percent, compute, mode`` (how the GPU is
shared now: ``free``, nobody else uses it; ``shared``, it is enough for all that do; ``windows``, it
is not, so they take turns; ``none``, there is no arbiter), ``concurrency`` (``time-slices``, or
``mps``: its processes are clients of the GPU's MPS server; the table says the latter behind the
mode), ``pending`` (a list: those of ``core`` and ``memory`` that hold when the process starts
again, as MPS has it; the table says so behind the value), ``launches, gpu_time_seconds,
share_percent`` (of the GPU's time, lately; all null where no cap is held in time and nothing was
sampled), ``estimated`` (true: these three come from samples, the table shows ``~``),
``held_seconds`` (launches were held back that long), ``delay_p99_seconds`` (99 of 100 held launches
waited no longer; to within a factor of two), ``windows`` (turns on a contended GPU in which there
were launches), ``refused_count, last_refusal`` (null, or ``asked_bytes, used_bytes, limit_bytes,
kind, at``).
"""

import time
from pathlib import Path

import click

from libvgpu.errors import UsageError
from libvgpu.sizes import format_size
from libvgpu.slices import read_slices

from ..examples import examples
from ..fitting import BEFORE_NAMES, shortened
from ..observe import LEFT_OVER, process_rows
from ..options import chosen_run_dir, node_dirs_options, output_option
from ..render import SHORT_UUID, Column, Row, format_seconds, print_listing, say, size_column

_COMMAND_WIDTH = 40


def _who(row: Row) -> str:
    if row["pod"]:
        return f"{row['namespace']}/{row['pod']}/{row['container']}"
    if row["name"]:
        return str(row["name"])
    command = row["command"]
    assert isinstance(command, list)
    return shortened(" ".join(" ".join(command).split()) or "-", _COMMAND_WIDTH)


def _pending(row: Row, name: str) -> str:
    pending = row["pending"]
    return " pending" if isinstance(pending, list) and name in pending else ""


def _core(row: Row) -> str:
    value = row["core_percent"]
    if value is None:
        return "-"
    return f"{value}%{_pending(row, 'core')}" if value else LEFT_OVER


def _memory(row: Row) -> str:
    used, limit = row["memory_used_bytes"], row["memory_limit_bytes"]
    if not isinstance(limit, int):
        return "-"
    shown = format_size(used) if isinstance(used, int) else "?"
    return f"{shown} / {format_size(limit)}{_pending(row, 'memory')}"


def _text(key: str, rank: int = 0) -> Column:
    return Column(
        key.upper(), lambda row: "-" if row[key] in (None, "") else str(row[key]), rank=rank
    )


def _flagged(row: Row, shown: str) -> str:
    """Marks what comes from samples."""
    return f"~{shown}" if row["estimated"] else shown


def _gpu_time(row: Row) -> str:
    value = row["gpu_time_seconds"]
    return "-" if value is None else _flagged(row, format_seconds(value))


def _launches(row: Row) -> str:
    return "-" if row["launches"] is None else _flagged(row, str(row["launches"]))


def _share(row: Row) -> str:
    value = row["share_percent"]
    return "-" if value is None else _flagged(row, f"{value}%")


def _mode(row: Row) -> str:
    """Clients of family mps have no mode, since nobody arbitrates between them."""
    mode = row["mode"]
    return "-" if not mode else f"{mode}, mps" if row["concurrency"] == "mps" else str(mode)


def _duration(title: str, key: str, rank: int) -> Column:
    return Column(
        title, lambda row: "-" if row[key] is None else format_seconds(row[key]), True, rank
    )


def _count(title: str, key: str, rank: int) -> Column:
    return Column(title, lambda row: "-" if row[key] is None else str(row[key]), True, rank)


def _pid(row: Row) -> str:
    """Memory that several processes hold is a row of its own, marked by its maker's."""
    mark = " (shared)" if row["shared_memory"] else " (ended)" if row.get("ended") else ""
    return f"{row['pid'] or '-'}{mark}"


def _since(row: Row) -> str:
    at = row["created_at"]
    assert isinstance(at, int | float)
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


#: The ranks say what a narrow terminal shows: which slice, what it has, how it is.
COLUMNS = (
    _text("allocation"),
    Column("POD OR COMMAND", _who, is_name=True),
    _text("family", 7),
    Column("GPU", lambda row: str(row["gpu_uuid"] or "-")[:SHORT_UUID], rank=5),
    Column("PID", _pid, True, 6),
    Column("MEMORY", _memory, True, BEFORE_NAMES),
    Column("CORE", _core, True, BEFORE_NAMES),
    Column("NOW", _share, True, 4),
    Column("MODE", _mode, rank=9),
    Column("GPU TIME", _gpu_time, True, 10),
    _duration("HELD", "held_seconds", 8),
    _duration("P99 DELAY", "delay_p99_seconds", 11),
    Column("LAUNCHES", _launches, True, 12),
    _count("WINDOWS", "windows", 13),
    _count("REFUSED", "refused_count", 3),
    _text("state", 2),
)
#: They are asked for, so a narrow terminal leaves out others first.
WIDE = (
    Column("GPU UUID", lambda row: str(row["gpu_uuid"] or "-"), rank=5),
    size_column("PEAK", "memory_peak_bytes", 3),
    size_column("UNACCOUNTED", "memory_unaccounted_bytes", 3),
    _text("compute", 4),
    Column("COMMAND", lambda row: str(row["process"] or "-"), rank=4),
    Column("SINCE", _since, rank=5),
)


def is_wanted(row: Row, namespace: str | None, pod: str | None, gpu: str | None) -> bool:
    """Returns whether a row is of these, where they are named; of ``gpu`` the beginning counts."""
    return (
        (namespace is None or row["namespace"] == namespace)
        and (pod is None or row["pod"] == pod)
        and (gpu is None or str(row["gpu_uuid"] or "").startswith(gpu))
    )


def _uuid_of(gpu: str) -> str:
    """Returns the UUID of a GPU that is named by its index; a UUID or its beginning as it is.

    Raises:
        UsageError: there is no such index here.
    """
    if not gpu[:1].isdecimal():
        return gpu
    from ..node_gpus import seen_gpus

    seen, _ = seen_gpus()
    for each in seen:
        if each.gpu.name == gpu:
            return each.gpu.uuid
    names = ", ".join(each.gpu.name for each in seen) or "none"
    raise UsageError(f"--gpu {gpu!r} is not a GPU of this node; there are: {names}")


@click.command(
    epilog=examples(
        "vgpuctl ps -n team-a --gpu 0 -w",
        "vgpuctl ps -o json | jq '.[] | select(.refused_count > 0)'",
    )
)
@click.option("-n", "--namespace", help="Only those of a namespace.")
@click.option("--pod", help="Only those of pods of this name.")
@click.option("--gpu", metavar="INDEX|UUID", help="Only those on one GPU or MIG device.")
@click.option("-w", "--wide", is_flag=True, help="More columns.")
@node_dirs_options
@output_option
def ps(
    namespace: str | None,
    pod: str | None,
    gpu: str | None,
    wide: bool,
    run_dir: Path | None,
    state_dir: Path,
    kubelet_dir: Path,
    output: str,
) -> None:
    """Show every slice and the processes in it."""
    uuid = None if gpu is None else _uuid_of(gpu)
    looked_in = chosen_run_dir(run_dir)
    found = process_rows(read_slices(looked_in))
    rows = [row for row in found if is_wanted(row, namespace, pod, uuid)]
    empty = f"no slices in {looked_in}" + " that are wanted" * bool(found)
    print_listing(rows, (*COLUMNS, *WIDE) if wide else COLUMNS, output, empty)
    if output == "table":
        for state, problem in {(row["state"], row["problem"]) for row in rows if row["problem"]}:
            say(f"vgpuctl: {state}: {problem}")
