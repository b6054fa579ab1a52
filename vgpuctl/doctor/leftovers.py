"""Checks for what the dead left in the run directory, and for room in the state directory.

`look` and `room` go and see; the rest is pure. What the agent's slices are is told by the agent,
or while it is down by the kubelet's checkpoint.
"""

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from libvgpu.allocation_dirs import META
from libvgpu.counting import counted
from libvgpu.ownership import SOURCE
from libvgpu.sizes import format_size
from libvgpu.slices import ABANDONED, BUSY, DAMAGED, Slice

from .finding import Finding, fail, ok, warn
from .node_checks import AS_ROOT

_CHECK, _STATE = "leftovers", "state directory"
#: Longer than making a slice takes.
_HALF_MADE_AFTER_S = 60.0
_SHOWN = 3
#: Checkpoint and journal of a full node with their next versions, two builds of the shim, a config.
_WANTED_BYTES, _LEAST_BYTES = 64 << 20, 4 << 20
_LEAST_FILES = 64


@dataclass(frozen=True, slots=True)
class Known:
    """The slices of the agent that somebody has.

    Attributes:
        ids: their allocations.
        by: who says so.
        is_running: the agent is, and so removes the others by itself.
    """

    ids: Collection[str]
    by: str
    is_running: bool


def look(run_dir: Path, slices: Sequence[Slice], known: Known | None) -> list[Finding]:
    """Tells of directories of slices that nobody has.

    Args:
        slices: those of the run directory.
        known: None where nobody tells, and then those of the agent are left alone.
    """
    try:
        os.listdir(run_dir / "allocations")
    except PermissionError:
        return [warn(_CHECK, f"the slices of {run_dir} may not be seen by this user", AS_ROOT)]
    except OSError:
        return []  # the check of the run directory says why
    now_s = time.time()
    found = _of_runs(run_dir, slices) + _half_made(run_dir, now_s)
    if known is not None:
        # One that is new may have come after the others were told of.
        old = [each for each in slices if now_s - each.meta.created_at > _HALF_MADE_AFTER_S]
        found += _of_nobody(old, known)
    found += [
        warn(
            _CHECK,
            f"the files of allocation {each.meta.allocation_id} are damaged: {each.problem}",
            "delete its pod; its controller makes a new one",
        )
        for each in slices
        if each.state == DAMAGED and each.meta.source != SOURCE
    ]
    found += [
        warn(
            _CHECK,
            f"the files of allocation {each.meta.allocation_id} are kept busy: {each.problem}",
            "start the agent, which prevents this, or end the pod",
        )
        for each in slices
        if each.state == BUSY
    ]
    if found or not slices:
        return found
    return [ok(_CHECK, f"{counted(len(slices), 'slice')} in {run_dir}, each with an owner")]


def room(state_dir: Path) -> list[Finding]:
    """Tells whether the agent can keep its state."""
    try:
        seen = os.statvfs(state_dir)
    except PermissionError:
        return [warn(_STATE, f"{state_dir} may not be seen by this user", AS_ROOT)]
    except OSError:
        return []  # no agent was ever started here
    is_read_only = bool(seen.f_flag & os.ST_RDONLY)
    has_files = not seen.f_files or seen.f_favail >= _LEAST_FILES  # some count no inodes
    return [judge_room(state_dir, seen.f_bavail * seen.f_frsize, has_files, is_read_only)]


def judge_room(state_dir: Path, free_bytes: int, has_files: bool, is_read_only: bool) -> Finding:
    """Judges the file system of the state directory.

    Args:
        has_files: files can still be made on it, as far as inodes go.
    """
    fix = f"make room on its file system: df -h {state_dir}; du -xsh {state_dir}"
    told = f"{format_size(free_bytes)} are free for {state_dir}"
    if is_read_only:
        return fail(
            _STATE,
            f"{state_dir} is on a file system that is mounted read-only, so no slice can be given",
            "see dmesg for errors of its disk, then: mount -o remount,rw "
            f"$(findmnt -no TARGET -T {state_dir})",
        )
    if not has_files:
        return fail(_STATE, f"the file system of {state_dir} has no inodes left", fix)
    if free_bytes < _LEAST_BYTES:
        return fail(_STATE, f"{told}, so the agent cannot note a slice and gives none", fix)
    if free_bytes < _WANTED_BYTES:
        return warn(_STATE, f"{told} of the {format_size(_WANTED_BYTES)} that it may need", fix)
    return ok(_STATE, told)


def _of_runs(run_dir: Path, slices: Sequence[Slice]) -> list[Finding]:
    dead = [each.meta.allocation_id for each in slices if each.state == ABANDONED]
    if not dead:
        return []
    return [
        warn(
            _CHECK,
            f"{len(dead)} slices of a vgpuctl run that was killed: {_named(dead)}",
            f"the next one removes them: vgpuctl run --run-dir {run_dir} --memory 64MiB -- true",
        )
    ]


def _of_nobody(slices: Sequence[Slice], known: Known) -> list[Finding]:
    dead = [
        each.meta.allocation_id
        for each in slices
        if each.meta.source != SOURCE and each.meta.allocation_id not in known.ids
    ]
    if not dead:
        return []
    fix = "start the agent: it removes them"
    if known.is_running:
        fix = "restart the agent: kubectl -n vgpu-system delete pod of this node's vgpu-agent"
    what = f"{counted(len(dead), 'slice')} that no container has"
    return [
        warn(
            _CHECK,
            f"{what}, as {known.by} says: {_named(dead)}",
            fix,
        )
    ]


def _half_made(run_dir: Path, now_s: float) -> list[Finding]:
    dead = []
    top = run_dir / "allocations"
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []  # said by the check of the run directory
    for name in names:
        try:
            if not (top / name / META).exists():
                age_s = now_s - (top / name).stat().st_mtime
                dead += [str(top / name)] if age_s > _HALF_MADE_AFTER_S else []
        except OSError:
            continue
    if not dead:
        return []
    return [
        warn(
            _CHECK,
            f"{len(dead)} directories of slices that were never finished: {_named(dead)}",
            f"rm -r {' '.join(dead[:_SHOWN])}",
        )
    ]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
