"""Equal parts of a GPU under MPS (``sharing.mps``): a replica as units of the GPU. Pure.

A replica is a slice of family mps like any other: of N, number n has the n-th part of the core
units and one memory unit, which is the N-th part of the GPU's memory. The kubelet counts the
replica; the units are implicit. So limits, the MPS daemon, metrics and `vgpuctl` know nothing else
of replicas.
"""

from collections.abc import Sequence

from deviceplugin.model.allocations import Allocation
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, unit_name
from libvgpu.errors import AllocationRefused
from libvgpu.limits import Family

from .device_choice import given_devices
from .device_resources import DeviceResource
from .layout import Layout


def replica_allocation(
    layout: Layout,
    resource: DeviceResource,
    device_ids: Sequence[str],
    now_s: float,
    new_id: str,
) -> Allocation:
    """Returns what a container gets that was given one replica.

    Args:
        layout: in force.
        now_s: seconds on the agent's monotonic clock.
        new_id: for the allocation.

    Raises:
        AllocationRefused: not one replica that is offered.
    """
    (device,) = given_devices(resource, device_ids)
    (replica,) = device_ids
    shared = layout.find(device.gpu.uuid)
    if shared is None or not shared.replicas:
        raise AllocationRefused(f"{resource.name}: GPU {device.gpu.uuid} is not under MPS now")
    number, core = device.ids.index(replica), CORE_UNITS_PER_GPU // shared.replicas
    uuid = device.gpu.uuid
    units = [unit_name(uuid, Half.CORE, number * core + n) for n in range(core)]
    return Allocation(
        allocation_id=new_id,
        family=Family.MPS,
        uuid=uuid,
        memory_unit_bytes=shared.memory_unit_bytes,
        implicit_units=(*units, unit_name(uuid, Half.MEMORY, number)),
        replicas=(replica,),
        settled=True,
        changed_s=now_s,
    )
