"""What a node agent publishes of its node for who schedules pods, and how it is written.

One annotation (`INVENTORY_KEY`) of a Lease that is named as the node, in the agents' namespace, as
JSON. A Lease and not the Node: an agent then needs no right to change Nodes, and nobody who follows
Nodes is woken when a slice comes or goes. It is written when it has changed, so an old one is no
sign of a dead agent; of that the kubelet tells the scheduler, by the units it counts.

The form is read by schedulers of other releases: keys may be added; who changes what one means
raises `FORM`.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from libvgpu.decoding import json_decoder

#: Behind the resource domain and a slash.
INVENTORY_KEY = "vgpu.inventory"
#: The label that all such Leases have, and its value.
COMPONENT_LABEL, COMPONENT = "app.kubernetes.io/component", "vgpu-inventory"
FORM = 1
#: All annotations of an object together may have 256 KiB.
MOST_BYTES = 240 << 10


#: What is read of others. Whoever judges nodes counts on it: a larger number would be refused by C.
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Units = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An object of the annotation; keys that are not known are left for later releases."""


class PublishedSharing(_Part, frozen=True):
    """How a GPU is shared in units.

    Attributes:
        family: ``vgpu`` or ``mps``.
        placement: ``binpack`` or ``spread``.
        drains: it still carries slices of an earlier sharing, and nothing of it is given.
        most_containers: how many MPS serves; None where MPS does not.
        lone_halves: a container may ask for core or memory alone.
    """

    family: str
    memory_unit_bytes: Bytes
    memory_units: Units
    placement: str = "binpack"
    drains: bool = False
    most_containers: Count | None = None
    lone_halves: bool = True


class PublishedGpu(_Part, frozen=True):
    """One GPU or MIG device that is shared in units.

    Attributes:
        index: of the GPU; a MIG device has that of its GPU.
        unhealthy: why nothing of it is given, empty while it is well.
        closeness: how close others lie, by UUID, as `Gpu.closeness`.
        mig_profile: of a MIG device; empty of a GPU.
    """

    index: Count
    uuid: str
    product: str
    memory_bytes: Bytes
    sharing: PublishedSharing
    unhealthy: str = ""
    closeness: Mapping[str, int] = {}
    mig_profile: str = ""


class PublishedSlice(_Part, frozen=True):
    """What one container holds of GPUs that are shared in units.

    Attributes:
        id: of the allocation.
        units: core and memory units that it uses up on each GPU, by UUID; those of a default that
            it will get when it starts, and of a raised limit, are among them.
        pod: namespace and name; None until podresources told, and while one half of a pair may
            still be to come.
        container: its name; empty until then.
    """

    id: str
    units: Mapping[str, tuple[Count, Count]]
    pod: tuple[str, str] | None = None
    container: str = ""


class PublishedResource(_Part, frozen=True):
    """One resource of whole devices or replicas.

    Attributes:
        name: with the domain.
        total: devices or replicas that are offered.
        held: those of them that pods have.
        pods: namespace and name of those that hold some, once for each device or replica; of one
            that podresources has not told both are empty.
        most: how many a container may have; 0: as many as there are.
        products: of its devices.
    """

    name: str
    total: Count
    held: Count = 0
    pods: tuple[tuple[str, str], ...] = ()
    most: Count = 0
    products: tuple[str, ...] = ()


class PublishedNode(_Part, frozen=True):
    """What a node has, and what of it is held.

    Attributes:
        form: `FORM` of who wrote it.
        domain: of its resources.
        gpus: that are shared in units.
        slices: of them.
        resources: of what is not.
    """

    form: int
    domain: str
    gpus: tuple[PublishedGpu, ...] = ()
    slices: tuple[PublishedSlice, ...] = ()
    resources: tuple[PublishedResource, ...] = ()


_NODE = json_decoder(PublishedNode)


def encode(node: PublishedNode) -> str:
    """Returns the annotation's value; the same for the same content."""
    return msgspec.json.encode(node, order="sorted").decode()


def decode(value: str) -> PublishedNode | None:
    """Returns what an annotation says; None if it is no such thing or of a newer form.

    Numbers that no node can have make it no such thing.
    """
    try:
        found = _NODE.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
    return found if found.form == FORM else None
