"""The facts for people: one block for each matter, a name and its value a line."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from libvgpu.sizes import format_size

from ..observe import LEFT_OVER
from ..render import format_seconds, printable

_WIDTH = 14
Facts = Mapping[str, Any]


def lines(facts: Facts) -> Iterator[str]:
    """Yields the lines of a container or of a GPU."""
    if "node" in facts:  # of several
        yield printable(_line("Node", facts["node"]))
    made = _gpu(facts) if facts["kind"] == "gpu" else _container(facts)
    yield from (printable(line) for line in made)


def _line(name: str, value: object, indent: int = 0) -> str:
    return f"{' ' * indent}{name + ':':<{_WIDTH}} {value}"


def _container(facts: Facts) -> Iterator[str]:
    command = " ".join(facts["command"])
    yield _line("Container", facts["owner"] or facts["name"] or command or "not yet known")
    if facts["name"]:
        yield _line("Command", command)
    yield _line("Allocation", f"{facts['allocation']} ({_source(facts)})")
    yield _line("Since", _moment(facts["created_at"]))
    yield _line("Family", facts["family"])
    yield _line("State", facts["state"] + (f": {facts['problem']}" if facts["problem"] else ""))
    yield _line("Files", facts["directory"])
    if facts["shim_build"]:
        yield _line("Shim", f"build {facts['shim_build'][:12]}")
    for device in facts["devices"]:
        yield ""
        yield _line("GPU", _gpu_name(device))
        yield from _limits(device, facts["has_agent"] and facts["source"] == "kubelet")
        yield from _usage(device)
    yield from _events(facts)


def _source(facts: Facts) -> str:
    return "vgpuctl run" if facts["source"] == "run" else "from the kubelet"


def _gpu_name(device: Facts) -> str:
    if device["gpu"] is None:
        return str(device["gpu_uuid"])
    return f"{device['gpu']} ({device['gpu_uuid']}, {device['product']})"


def _limits(device: Facts, has_origins: bool) -> Iterator[str]:
    if device["asked_memory_bytes"] is not None:
        asked = f"core {device['asked_core_percent']}"
        yield _line("Asked", f"{asked}, memory {format_size(device['asked_memory_bytes'])}", 2)
    elif not has_origins:
        yield _line("Asked", "not known without the agent", 2)
    percent = device["core_percent"]
    core = f"{percent} %" if percent else "none reserved, what others leave over"
    yield _line("Core", f"{core}{_from(device['core_from'])}", 2)
    memory = format_size(device["memory_limit_bytes"])
    if 0 < device["physical_bytes"] < device["memory_limit_bytes"]:
        memory += f" ({format_size(device['physical_bytes'])} of it backed by memory)"
    yield _line("Memory limit", f"{memory}{_from(device['memory_from'])}", 2)
    yield _line("Compute", f"{device['compute']}{_from(device['compute_from'])}", 2)
    if device["mps_pipe_directory"]:
        yield _line("MPS", f"client through {device['mps_pipe_directory']}", 2)


def _from(origin: str | None) -> str:
    return f", from {origin}" if origin else ""


def _usage(device: Facts) -> Iterator[str]:
    if device["memory_used_bytes"] is not None:
        used = format_size(device["memory_used_bytes"])
        yield _line("Memory", f"{used} in use, peak {format_size(device['memory_peak_bytes'])}", 2)
        if device["memory_by_kind"]:
            yield _line("By kind", _kinds(device["memory_by_kind"]), 2)
    if device["memory_unaccounted_bytes"]:
        unaccounted = format_size(device["memory_unaccounted_bytes"])
        yield _line("Unaccounted", f"{unaccounted} that only NVML sees, charged too", 2)
    yield _line("Now", _now(device), 2)
    yield _line("Throttle", device["verdict"], 2)
    if device["held_percent_since_start"]:
        yield _line("Since start", f"held {device['held_percent_since_start']} % of the time", 2)
    if device["delay_p99_seconds"] is not None:
        delay = format_seconds(device["delay_p99_seconds"])
        yield _line("Delays", f"99 of 100 held launches waited {delay} or less", 2)
    yield _line("Refused", _refused(device), 2)
    for process in device["processes"]:
        name = "shared memory of" if process["shared_memory"] else "process"
        kinds = f" ({_kinds(process['memory_by_kind'])})" if process["memory_by_kind"] else ""
        yield (
            f"    {name} {process['pid']} {process['command']}: "
            f"{format_size(process['memory_used_bytes'])}{kinds}, GPU time "
            f"{format_seconds(process['gpu_time_seconds'])}, held "
            f"{format_seconds(process['held_seconds'])}"
        )


def _kinds(kinds: Facts) -> str:
    return ", ".join(f"{kind} {format_size(size)}" for kind, size in kinds.items())


def _now(device: Facts) -> str:
    if device["share_percent"] is None:
        return "no launches"
    mark = "about " if device["share_is_estimated"] else ""
    return f"{mark}{device['share_percent']} % of the GPU's time"


def _refused(device: Facts) -> str:
    if not device["refused_count"]:
        return "nothing"
    count = device["refused_count"]
    text = f"{count} allocation{'s' * (count != 1)}"
    last = device["last_refusal"]
    if last is None:
        return text
    return (
        f"{text}, the last {_moment(last['at'])}: {format_size(last['asked_bytes'])} asked "
        f"({last['kind']}), {format_size(last['used_bytes'])} of "
        f"{format_size(last['limit_bytes'])} in use"
    )


def _gpu(facts: Facts) -> Iterator[str]:
    yield _line("GPU", _gpu_name(facts))
    yield _line("Family", facts["family"] or "no slices")
    yield _line("Health", _health(facts["health"]))
    total = facts["memory_total_bytes"]
    free = facts["memory_free_bytes"]
    yield _line(
        "Memory",
        f"{format_size(facts['memory_used_bytes'])} in use by slices, "
        f"{format_size(facts['memory_allocated_bytes'])} given of "
        f"{format_size(total) if total else '?'}, {'?' if free is None else format_size(free)} "
        "free",
    )
    yield _line(
        "Core",
        f"{facts['core_allocated_percent']} % given, {facts['core_free_percent']} % free, "
        f"{facts['share_percent']} % used",
    )
    for each in facts["devices"]:
        yield _line("Whole", f"{each['id']} as {each['resource']}: {each['owner'] or 'unknown'}")
    for each in facts["slices"]:
        share = "-" if each["share_percent"] is None else each["share_percent"]
        yield (
            f"  {each['who']} ({each['allocation'][:12]}, {each['state']}): memory "
            f"{format_size(each['memory_used_bytes'])} of "
            f"{format_size(each['memory_limit_bytes'])}, share {share} of "
            f"{each['core_percent'] or LEFT_OVER}, held {each['held_percent']} %"
        )
    yield from _events(facts)


def _health(health: Facts) -> str:
    if health["unhealthy"] is None:
        return "not known without the agent"
    said = {
        "unhealthy": health["unhealthy"],
        "draining": health["draining"],
        "nothing of it is offered": health["withheld"],
    }
    return "; ".join(f"{name}: {why}" for name, why in said.items() if why) or "well"


def _events(facts: Facts) -> Iterator[str]:
    if facts["events"]:
        yield ""
        yield "Events:"
        for each in facts["events"]:
            yield f"  {_moment(each['at'])} {each['reason']}: {each['text']}"


def _moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
