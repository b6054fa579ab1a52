"""What is free of a node that is not there: an autoscaler's template, by its allocatable. Pure.

An autoscaler asks whether a pod would fit a node that it could add. Nothing is held there, and of
100 core units each the GPUs have equal parts of the memory units.
"""

from collections.abc import Mapping

from deviceplugin.kube.quantity import MOST_UNITS, whole_amount
from deviceplugin.model.units import CORE_UNITS_PER_GPU, Half, fraction_resources, resource_name
from deviceplugin.scheduler.search.node_view import DeviceRoom, GpuRoom, NodeView
from libvgpu.errors import VgpuError
from libvgpu.limits import Family

PRODUCT_LABEL, MEMORY_LABEL = "gpu.product", "gpu.memory"
_UNIT_BYTES = 1 << 30
#: Of one family; a number that nobody's node has is not worth the memory.
_MOST_GPUS = 1024


def template_view(
    name: str,
    domain: str,
    allocatable: Mapping[str, str | int],
    labels: Mapping[str, str],
) -> NodeView:
    """Returns it; a node that offers nothing of the domain has neither GPUs nor devices.

    Args:
        allocatable: of the Node.
        labels: of the Node; those of GPU Feature Discovery tell product and memory.
    """
    amounts: dict[str, int] = {}
    for resource, text in allocatable.items():
        if resource.startswith(f"{domain}/"):
            try:
                amounts[resource] = whole_amount(text)
            except VgpuError:
                continue  # an amount that is none is nothing that could be given
    gpus = [room for family in Family for room in _rooms(name, domain, family, amounts, labels)]
    fractions = fraction_resources(domain)
    product = labels.get(f"{domain}/{PRODUCT_LABEL}", "")
    devices = {
        resource: DeviceRoom(count, count, products=(product,) if product else ())
        for resource, count in amounts.items()
        if resource not in fractions
    }
    return NodeView(name, domain, tuple(gpus), devices)


def _rooms(
    name: str,
    domain: str,
    family: Family,
    amounts: Mapping[str, int],
    labels: Mapping[str, str],
) -> list[GpuRoom]:
    core, memory = (amounts.get(resource_name(domain, family, half), 0) for half in Half)
    count = min(_MOST_GPUS, core // CORE_UNITS_PER_GPU)
    units = memory // count if count else 0
    if not units:
        return []
    problem = ""
    if units > MOST_UNITS:
        units = MOST_UNITS
        problem = (
            f"the node says that it has {resource_name(domain, family, Half.MEMORY)}: {memory}, "
            f"which is more than {MOST_UNITS} units a GPU; they are units and not bytes"
        )
    told = labels.get(f"{domain}/{MEMORY_LABEL}", "")
    is_told = told.isascii() and told.isdecimal() and len(told) < 12
    unit_bytes = (int(told) << 20) // units if is_told else _UNIT_BYTES
    return [
        GpuRoom(
            index,
            f"GPU-{name}-{family.name.lower()}-{index}",
            labels.get(f"{domain}/{PRODUCT_LABEL}", ""),
            family,
            CORE_UNITS_PER_GPU,
            units,
            units,
            max(1, unit_bytes),
            problem=problem,
        )
        for index in range(count)
    ]
