"""How a container is told which GPUs are its own: the forms that container runtimes read.

NVIDIA's runtime takes the list from ``NVIDIA_VISIBLE_DEVICES``, or, where it is set up not to trust
a variable that every pod can write, from mounts of /dev/null whose names are the devices. Runtimes
that speak CDI look up names in the node's CDI files: they come in a field of the answer of their
own, or in an annotation for those that do not know that field. The config names one or several
(``auto`` is one of them by the time that containers come).

Pure. All parts follow from the GPUs and the allocation's id alone, so the two halves of a pair
give the same bytes, and the kubelet may merge them in any order. Of device nodes only those that
are there are given, so one half may have fewer of them, never others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deviceplugin.cdi.mig_minors import MigMinors, capability_nodes
from deviceplugin.model.device_forms import DeviceForms, IdStrategy, ListStrategy, annotation_key
from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu
from deviceplugin.policy.devices.device_resources import place_of
from libvgpu.errors import InventoryError

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
IMEX_CHANNELS = "NVIDIA_IMEX_CHANNELS"
#: Mounts under it are read as names of devices, if what is mounted is /dev/null.
LIST_DIRECTORY = "/var/run/nvidia-container-devices"
#: What every user of a GPU opens next to the GPU's own node; a driver need not have all of them.
_CONTROL_NODE = "/dev/nvidiactl"
_SHARED_NODES = (_CONTROL_NODE, "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
Exists = Callable[[str], bool]
_NO_MINORS: MigMinors = {}


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount of an answer."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One device node of an answer; ``permissions`` of ``rwm``."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What a container is started with for one half."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    def joined(self, other: "Answer") -> "Answer":
        """Returns both; their keys must not meet."""
        return Answer(
            {**self.envs, **other.envs},
            self.mounts + other.mounts,
            self.devices + other.devices,
            {**self.annotations, **other.annotations},
            self.cdi_devices + other.cdi_devices,
        )


def device_parts(
    gpus: Sequence[Gpu],
    forms: DeviceForms,
    allocation_id: str,
    exists: Exists,
    minors: MigMinors = _NO_MINORS,
) -> Answer:
    """Returns the parts of an answer that bring ``gpus`` into the container.

    Args:
        gpus: one or several; their order does not matter.
        exists: whether a path is there, as the agent sees it.
        minors: of the capabilities of MIG devices, for answers with device nodes.

    Raises:
        InventoryError: a GPU without an index is to be named by it, or an IMEX channel is missing
            that containers must have.
    """
    ordered = sorted(gpus, key=lambda gpu: (*place_of(gpu), gpu.uuid))
    ids = [_id(gpu, forms.ids) for gpu in ordered]
    names = tuple(f"{forms.cdi_kind}={name}" for name in ids)
    envs: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    annotations: dict[str, str] = {}
    if ListStrategy.ENVVAR in forms.lists:
        envs[VISIBLE_DEVICES] = ",".join(ids)
    if ListStrategy.VOLUME_MOUNTS in forms.lists:
        # No device is called so: a runtime that does not read the mounts fails with a message,
        # where it would otherwise go by the variable of the image, which often says "all".
        envs[VISIBLE_DEVICES] = LIST_DIRECTORY
        mounts = tuple(Mount(f"{LIST_DIRECTORY}/{name}", "/dev/null", False) for name in ids)
    if ListStrategy.CDI_ANNOTATIONS in forms.lists:
        annotations[annotation_key(forms.annotation_prefix, allocation_id)] = ",".join(names)
    channels = _channels(forms, exists)
    envs |= {f"NVIDIA_{feature}": "enabled" for feature in forms.features}
    if channels:
        envs[IMEX_CHANNELS] = ",".join(map(str, channels))
        if ListStrategy.VOLUME_MOUNTS in forms.lists:
            mounts += tuple(
                Mount(f"{LIST_DIRECTORY}/imex/{channel}", "/dev/null", False)
                for channel in channels
            )
    return Answer(
        envs,
        mounts,
        _nodes(ordered, channels, forms, exists, minors) if forms.pass_device_specs else (),
        annotations,
        names if ListStrategy.CDI_CRI in forms.lists else (),
    )


def missing_nodes(gpus: Sequence[Gpu], forms: DeviceForms, exists: Exists) -> tuple[str, ...]:
    """Returns which nodes the config asks to pass and containers cannot do without are not there.

    Each as a few words. Those of the CUDA driver's helpers come and go, and are not among them.
    """
    if not forms.pass_device_specs:
        return ()
    root = _seen_root(forms, exists)
    unnumbered = [
        f"that of GPU {g.index} (NVML reports no minor number)" for g in gpus if g.minor is None
    ]
    wanted = [_node(gpu.minor) for gpu in gpus if gpu.minor is not None]
    paths = [_below(root, path) for path in (*wanted, _CONTROL_NODE)]
    return (*unnumbered, *(path for path in paths if not exists(path)))


def _id(gpu: Gpu, ids: IdStrategy) -> str:
    if ids is IdStrategy.UUID:
        return gpu.uuid
    if gpu.runtime_index == UNKNOWN_INDEX:
        raise InventoryError(
            f"GPU {gpu.uuid} has no index, and flags.plugin.deviceIDStrategy is index",
            hint="it has left this node; with deviceIDStrategy uuid its name would still hold",
        )
    index = gpu.runtime_index
    return str(index) if gpu.mig is None else f"{index}:{gpu.mig.number}"


def _channels(forms: DeviceForms, exists: Exists) -> tuple[int, ...]:
    """Returns the IMEX channels that a container gets."""
    root = _seen_root(forms, exists)
    missing = [n for n in forms.imex_channels if not exists(_below(root, _channel_node(n)))]
    if missing and forms.needs_imex_channels:
        raise InventoryError(
            f"IMEX channel {missing[0]} does not exist ({_channel_node(missing[0])}), and "
            "imex.required is true",
            hint="load the driver with IMEX channels, or set imex.required to false",
        )
    return tuple(n for n in forms.imex_channels if n not in missing)


def _channel_node(channel: int) -> str:
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"


def _nodes(
    gpus: Sequence[Gpu],
    channels: Sequence[int],
    forms: DeviceForms,
    exists: Exists,
    minors: MigMinors,
) -> tuple[DeviceNode, ...]:
    root = _seen_root(forms, exists)
    own = [path for gpu in gpus for path in _own_nodes(gpu, minors)]
    return tuple(
        DeviceNode(path, _below(forms.dev_root, path), "rw")
        for path in (*dict.fromkeys(own), *_SHARED_NODES, *map(_channel_node, channels))
        if exists(_below(root, path))
    )


def _seen_root(forms: DeviceForms, exists: Exists) -> str:
    """Returns where the agent looks for nodes: it may run in a container of its own.

    The first of these that it can see; a privileged container has the host's nodes in its /dev.
    """
    for root in (forms.container_driver_root, forms.dev_root):
        if root and exists(_below(root, "/dev")):
            return root
    return "/"


def _own_nodes(gpu: Gpu, minors: MigMinors) -> tuple[str, ...]:
    """Returns a GPU's own node; of a MIG device that of its GPU, and those of its capabilities."""
    if gpu.minor is None:
        return ()
    if gpu.mig is None:
        return (_node(gpu.minor),)
    part = gpu.mig
    capabilities = capability_nodes(minors, gpu.minor, part.gpu_instance, part.compute_instance)
    return (_node(gpu.minor), *(capabilities or ()))


def _node(minor: int) -> str:
    return f"/dev/nvidia{minor}"


def _below(root: str, path: str) -> str:
    return root.rstrip("/") + path
