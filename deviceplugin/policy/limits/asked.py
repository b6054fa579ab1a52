"""From units to limits: what a container asked for, before any rule or `vgpuctl set`. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.concurrency import Concurrency
from deviceplugin.model.units import Half
from deviceplugin.policy.devices.exclusive_gpu import is_exclusive
from deviceplugin.policy.devices.layout import Layout
from deviceplugin.policy.devices.offer import fits_layout, gpu_units
from libvgpu.limits import ComputeMode, ContainerLimits, DeviceLimit, Family

from .learnt_sizes import LearntSizes, Sizes, kind_of

MIB = 1 << 20
#: Where the MPS pipe directory is in a container.
CONTAINER_PIPE_DIRECTORY = "/run/vgpu/mps"
#: Of a GPU that is not there any more, where nobody noted how it was shared.
DEFAULT_COMPUTE = ComputeMode.STRICT
_NOTHING_LEARNT = LearntSizes()
_UNKNOWN = Sizes()


def asked_on(
    layout: Layout, allocation: Allocation, learnt: LearntSizes = _NOTHING_LEARNT
) -> ContainerLimits:
    """Returns what an allocation is worth without any rule, by how its GPUs are shared now.

    Args:
        learnt: what containers of this node measured.
    """
    uuids = allocation.uuids
    here = {g.gpu.uuid: g for g in layout.gpus if g.gpu.uuid in uuids}
    shared = here.get(allocation.uuid)
    whole_bytes = {
        uuid: gpu.gpu.memory_bytes
        for uuid, gpu in here.items()
        if fits_layout(gpu, [allocation])
        and len(allocation.units) >= sum(gpu_units(gpu, half) for half in Half)
        and all(allocation.count(half, uuid) == gpu_units(gpu, half) for half in Half)
    }
    mode = shared.compute if shared else allocation.compute
    mode = DEFAULT_COMPUTE if mode is None else mode
    sizes = _UNKNOWN
    if shared is not None:
        sizes = learnt.of(kind_of(shared.gpu, shared.served_by_mps))
        sizes = replace(sizes, context_bytes=shared.gpu.context_bytes or sizes.context_bytes)
    return asked_limits(allocation, mode, sizes, whole_bytes)


def asked_limits(
    allocation: Allocation,
    compute: ComputeMode,
    sizes: Sizes = _UNKNOWN,
    whole_bytes: Mapping[str, int] | None = None,
) -> ContainerLimits:
    """Returns what an allocation is worth without any rule; a half that is missing is 0.

    Args:
        compute: how the config holds compute on its GPUs (family vgpu).
        sizes: of contexts and blocks there; what is not known the shim measures.
        whole_bytes: memory of each GPU whose last part of a unit nobody else could have, since the
            allocation has all its units, by UUID.
    """
    devices = []
    for uuid in allocation.uuids:
        percent = allocation.count(Half.CORE, uuid)
        units = allocation.count(Half.MEMORY, uuid) * allocation.memory_unit_bytes
        memory_bytes = (whole_bytes or {}).get(uuid, units)
        device = DeviceLimit(
            uuid=uuid,
            memory_limit_bytes=memory_bytes,
            physical_bytes=memory_bytes,
            context_bytes=sizes.context_bytes,
            block_bytes=sizes.block_bytes,
            core_percent=percent,
            compute_mode=compute,
            weight=max(1, percent),
        )
        devices.append(device)
    if allocation.family is Family.MPS:
        # MPS holds the share of its clients; on an exclusive GPU there is none to hold.
        exclusive = is_exclusive(allocation)
        devices = [
            replace(d, compute_mode=ComputeMode.OFF) if exclusive else under_mps(d) for d in devices
        ]
    elif allocation.concurrency is Concurrency.MPS and not is_exclusive(allocation):
        # A client, whose share and memory the shim holds as without MPS.
        devices = [replace(d, mps_pipe_directory=CONTAINER_PIPE_DIRECTORY) for d in devices]
    return ContainerLimits(allocation.allocation_id, allocation.family, tuple(devices))


def under_mps(device: DeviceLimit) -> DeviceLimit:
    """Returns limits for a client of family mps: MPS holds the share, so the shim does not, and
    counts memory in whole MiB.
    """
    whole_mib = max(MIB, device.memory_limit_bytes // MIB * MIB)
    return replace(
        device,
        compute_mode=ComputeMode.OFF,
        mps_thread_percentage=device.core_percent,
        mps_pinned_bytes=whole_mib if device.memory_limit_bytes else 0,
        mps_pipe_directory=CONTAINER_PIPE_DIRECTORY,
    )


def has_exclusive_gpu(limits: ContainerLimits) -> bool:
    """Returns whether a container of family mps has its GPUs without MPS: its share is all."""
    return limits.family is Family.MPS and not any(d.mps_pipe_directory for d in limits.devices)
