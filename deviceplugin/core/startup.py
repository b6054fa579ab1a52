"""What an agent that starts takes over: its checkpoint, and from the kubelet's what that lacks."""

import logging
from dataclasses import replace

from deviceplugin.log import event
from deviceplugin.model.allocations import Allocation, AllocationBook
from deviceplugin.model.held_devices import after_record
from deviceplugin.policy.devices.draining import in_force
from deviceplugin.policy.pairing.implicit_units import complete_start
from deviceplugin.recovery.kubelet_checkpoint import CheckpointReading
from deviceplugin.recovery.kubelet_records import allocation_of, build_of, devices_on_record
from deviceplugin.recovery.rebuild import rebuild
from deviceplugin.recovery.rebuilt_replicas import rebuild_replicas
from deviceplugin.store.node_state import NodeState
from deviceplugin.store.slice_files import SliceStore
from libvgpu.errors import VgpuError


def take_over(state: NodeState, store: SliceStore, seen: CheckpointReading, now_s: float) -> None:
    """Fills the state, and removes the files of allocations that nobody has on record.

    Args:
        seen: what the kubelet's checkpoint says.
        now_s: by the agent's monotonic clock.

    Raises:
        VgpuError: our checkpoint is there and cannot be read.
    """
    loaded = state.load()
    if loaded.problem:
        event(logging.ERROR, loaded.problem)
    if seen.problem:
        level = logging.WARNING if loaded.problem else logging.INFO
        event(level, "the kubelet's checkpoint cannot be read", reason=seen.problem)
    recorded = devices_on_record(seen, state.wanted.resource_domain)
    state.held = after_record(state.held, recorded, now_s)

    def complete(book: AllocationBook, allocation: Allocation) -> Allocation:
        return complete_start(in_force(state.wanted, state.gpus, book), book, allocation)

    rebuilt = rebuild(
        seen.entries, store.metas(), state.wanted, complete, loaded.allocations, state.gpus
    )
    replicas, more_problems = rebuild_replicas(
        seen.entries, store.metas(), state.wanted, loaded.allocations
    )
    made = (*rebuilt.allocations, *replicas)
    taken = [replace(h, compute=store.compute(h.allocation_id)) for h in made]
    for problem in (*rebuilt.problems, *more_problems):
        event(logging.WARNING, problem)
    for allocation in taken:
        event(
            logging.WARNING,
            "taken over from the kubelet's checkpoint",
            gpu=allocation.uuid,
            allocation=allocation.allocation_id,
            owner=allocation.owner or "unknown",
            core=len(allocation.core),
            memory=len(allocation.memory),
        )
    try:
        state.commit(taken)
    except VgpuError as error:  # what runs goes on; the next Allocate is refused with a reason
        event(logging.ERROR, error.message)
        for allocation in taken:
            state.book.put(allocation)
    try:
        _remove_what_nobody_has(state, store, seen, loaded.trusted)
    except OSError as error:  # what runs goes on; the next start removes it
        event(logging.ERROR, "what no container has any more is not removed", reason=error)


def _remove_what_nobody_has(
    state: NodeState, store: SliceStore, seen: CheckpointReading, is_trusted: bool
) -> None:
    if is_trusted or seen.problem is None:
        named = {allocation_of(entry) or "" for entry in seen.entries}
        for gone in store.sweep(set(state.book.allocations) | named):
            event(logging.INFO, "removed the files of an allocation that has ended", id=gone)
    if seen.problem is None:
        named = {allocation.shim_build for allocation in state.book.allocations.values()}
        named.update(build_of(entry) for entry in seen.entries)
        for build in store.builds.remove_others(named):
            event(logging.INFO, "removed a build of libvgpu.so that no container has", build=build)
