"""What `vgpuctl run --summary` says at the end, from the account of the run. Pure."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from libvgpu.limits import DeviceLimit, Family
from libvgpu.sizes import format_size
from libvgpu.usage import Refusal, is_measured

from ..render import format_seconds, printable
from .account import Account, DeviceAccount

_WIDTH = 13


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended.

    Attributes:
        who: its name or its command.
        allocation_id: of its slice.
        elapsed_s: from start to end, stops included.
        status: its exit status, 128 + n for signal n.
        gpus: how each device is called, in the order of ``limits``.
        limits: as they were at the end.
    """

    who: str
    allocation_id: str
    elapsed_s: float
    status: int
    gpus: Sequence[str]
    limits: Sequence[DeviceLimit]


def lines(run: EndedRun, account: Account) -> Iterator[str]:
    """Yields the lines of the block."""
    for line in _lines(run, account):
        yield printable(line)


def _lines(run: EndedRun, account: Account) -> Iterator[str]:
    yield (
        f"vgpuctl: {run.who} ({run.allocation_id}) ran {format_seconds(run.elapsed_s)}, "
        f"exit status {run.status}"
    )
    if account.problem:
        yield f"  figures up to the last good look only: {account.problem}"
    if account.is_partial:
        yield "  some processes ended unseen, within a fraction of a second, so figures marked ≥"
        yield "  lack what those did after the last look"
    for gpu, limit, device in zip(run.gpus, run.limits, account.devices, strict=False):
        yield f"  GPU {gpu}"
        for name, value in _device(limit, device, run.elapsed_s, "≥ " * account.is_partial):
            yield f"    {name + ':':<{_WIDTH}} {value}"


def _device(
    limit: DeviceLimit, device: DeviceAccount, elapsed_s: float, least: str
) -> Iterator[tuple[str, str]]:
    yield "Peak memory", f"{_peak(device, least)} of {format_size(limit.memory_limit_bytes)}"
    measured = is_measured(Family.VGPU, limit) and not device.is_estimated
    if measured or device.gpu_time_ns:
        mark = least + "about " * (not measured)
        share = _percent(device.gpu_time_ns, elapsed_s)
        time_s = format_seconds(device.gpu_time_ns / 1e9)
        yield "GPU time", f"{mark}{time_s}, on average {mark}{share:.1f} % of the GPU's time"
        yield "Launches", f"{mark}{device.launches}"
    else:
        yield "GPU time", "not known: the share is not held in time, and nothing was sampled"
    held = min(100.0, _percent(device.held_ns, elapsed_s))
    held_s = format_seconds(device.held_ns / 1e9)
    why = "" if limit.reserved_percent else "; without --core it has what others leave over"
    yield "Held back", f"{least}{held_s}, {least}{held:.1f} % of the run{why}" if held else "never"
    yield "Turns", f"{least}{device.windows} on a contended GPU" if device.windows else "none"
    yield "Refused", _refused(device, least)


def _peak(device: DeviceAccount, least: str) -> str:
    if least:
        return least + format_size(device.peak_bytes)
    most = format_size(device.most_peak_bytes)
    if device.most_peak_bytes == device.peak_bytes:
        return most
    return f"{format_size(device.peak_bytes)} to {most} (several processes at once)"


def _refused(device: DeviceAccount, least: str) -> str:
    if not device.refused_count:
        return "nothing"
    text = f"{least}{device.refused_count} allocation" + "s" * (device.refused_count > 1)
    return text + (_last(device.last_refusal) if device.last_refusal else "")


def _last(refusal: Refusal) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(refusal.at_ns / 1e9))
    return (
        f", the last {at}: {format_size(refusal.asked_bytes)} asked ({refusal.kind}), "
        f"{format_size(refusal.used_bytes)} of {format_size(refusal.limit_bytes)} in use"
    )


def _percent(duration_ns: int, of_s: float) -> float:
    return duration_ns / 1e7 / of_s if of_s > 0 else 0.0
