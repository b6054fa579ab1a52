"""The CDI spec of a node's GPUs: what a container runtime does to a container for each. Pure.

What every GPU needs (libraries, tools, control nodes) stands once, at the top; a device adds its
own nodes. Each GPU has its UUID and its index as names, a MIG device ``<index>:<number>``, and
``all`` is all of them. A GPU in MIG mode is there by its MIG devices alone. How the loader finds
the libraries: `library_edits`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deviceplugin.model.gpus import UNKNOWN_INDEX, Gpu

from .driver_files import DriverFiles
from .library_edits import bind_mount, hooks_of, mounts_by_name
from .mig_minors import MigMinors, capability_nodes

ALL = "all"
#: Keeps NVIDIA's own runtime, where it is the default, from bringing the GPUs that an image names.
_NO_OTHER_GPUS = "NVIDIA_VISIBLE_DEVICES=void"
CONTROL_NODE = "/dev/nvidiactl"
UVM_NODE = "/dev/nvidia-uvm"
#: Compute does without these, and a driver need not have them.
_HELPER_NODES = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_SIMULATED_DIRECTORY = "/run/vgpu-sim"


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What is known of the node's device nodes.

    Attributes:
        root: the node's directory that has ``dev``.
        exists: whether a path below it is there.
        is_loaded: the driver's kernel module is, so that what it makes must be there; without it
            (a simulated GPU) nodes that are not there are not missed.
        mig_minors: of capabilities.
        more: nodes that the config asks for in every container, as far as they exist.
    """

    root: str
    exists: Callable[[str], bool]
    is_loaded: bool
    mig_minors: MigMinors
    more: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Built:
    """A spec.

    Attributes:
        content: as CDI wants it; None where it would have no device, which CDI refuses.
        problems: why GPUs are left out, a sentence each.
    """

    content: dict[str, Any] | None
    problems: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of its devices."""
        return frozenset(d["name"] for d in (self.content or {}).get("devices", ()))


def build_spec(
    kind: str,
    gpus: Sequence[Gpu],
    driver: DriverFiles,
    devices: NodeDevices,
    machine: str,
    hook: str = "",
    simulated: str = "",
) -> Built:
    """Returns the spec of a node.

    Args:
        kind: such as ``nvidia.com/gpu``.
        machine: as ``uname -m`` says.
        hook: path on the node of nvidia-cdi-hook or nvidia-ctk; empty where it has neither.
        simulated: the directory of the simulated machine; empty with a real driver.
    """
    problems = []
    found: dict[str, dict[str, Any]] = {}
    everything: dict[str, dict[str, Any]] = {}
    visible = []
    for gpu in _givable(gpus):
        nodes, problem = _own_nodes(gpu, gpus, devices)
        if problem:
            problems.append(problem)
            continue
        edits = _device_edits(nodes, devices, [gpu.uuid] if simulated else [])
        found[gpu.uuid] = edits
        if gpu.runtime_index != UNKNOWN_INDEX:
            found[_index_name(gpu)] = edits
        everything |= {node["path"]: node for node in edits.get("deviceNodes", ())}
        visible.append(gpu.uuid)
    if not found:
        return Built(None, tuple(problems))
    found[ALL] = _device_edits([], devices, visible if simulated else [])
    if everything:
        found[ALL]["deviceNodes"] = list(everything.values())
    content = {
        "cdiVersion": "",
        "kind": kind,
        "devices": [{"name": name, "containerEdits": edits} for name, edits in found.items()],
        "containerEdits": _common_edits(driver, devices, machine, hook, simulated),
    }
    return Built(content | {"cdiVersion": least_version(content)}, tuple(problems))


def without_devices(built: Built, names: frozenset[str]) -> Built:
    """Returns a spec less the devices that somebody else's spec of the same kind has.

    A runtime refuses a device that two specs have.
    """
    if built.content is None or not names:
        return built
    devices = [d for d in built.content["devices"] if d["name"] not in names]
    if not devices:
        return Built(None, built.problems)
    content = built.content | {"devices": devices}
    return Built(content | {"cdiVersion": least_version(content)}, built.problems)


def least_version(content: dict[str, Any]) -> str:
    """Returns the oldest version of CDI whose runtimes understand a spec that we write."""
    edits = [content["containerEdits"], *(d["containerEdits"] for d in content["devices"])]
    has_host_path = any("hostPath" in n for e in edits for n in e.get("deviceNodes", ()))
    starts_with_digit = any(d["name"][0].isdigit() for d in content["devices"])
    return "0.5.0" if has_host_path or starts_with_digit else "0.3.0"


def _givable(gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    seen = set()
    for gpu in gpus:
        for each in gpu.mig_devices if gpu.is_mig_enabled else (gpu,):
            if each.uuid not in seen:
                seen.add(each.uuid)
                yield each


def _index_name(gpu: Gpu) -> str:
    index = gpu.runtime_index
    return str(index) if gpu.mig is None else f"{index}:{gpu.mig.number}"


def _own_nodes(gpu: Gpu, gpus: Sequence[Gpu], devices: NodeDevices) -> tuple[list[str], str | None]:
    """Returns the nodes of a GPU, or why it cannot be given."""
    minor = gpu.minor
    if minor is None and gpu.mig is not None:
        minor = next((g.minor for g in gpus if g.uuid == gpu.mig.parent_uuid), None)
    if minor is None:
        problem = f"GPU {gpu.uuid} has no device node: NVML reports no minor number"
        return [], problem if devices.is_loaded else None
    nodes = [f"/dev/nvidia{minor}"]
    if gpu.mig is None:
        return nodes, None
    part = gpu.mig
    found = capability_nodes(devices.mig_minors, minor, part.gpu_instance, part.compute_instance)
    if found is not None:
        return [*nodes, *found], None
    problem = (
        f"MIG device {gpu.uuid} has no capability nodes: the driver lists no minors of GPU "
        f"instance {part.gpu_instance}, compute instance {part.compute_instance} of GPU {minor}"
    )
    return nodes, problem if devices.is_loaded else None


def _device_edits(
    nodes: Sequence[str], devices: NodeDevices, simulated: Sequence[str]
) -> dict[str, Any]:
    # CDI refuses a device without any edit, which one without nodes would be.
    env = [_NO_OTHER_GPUS, *([f"VGPU_SIM_VISIBLE={','.join(simulated)}"] if simulated else [])]
    given = _nodes(nodes, devices)
    return {"env": env, **({"deviceNodes": given} if given else {})}


def _nodes(paths: Sequence[str], devices: NodeDevices) -> list[dict[str, Any]]:
    root = devices.root.rstrip("/")
    return [
        {"path": path, **({"hostPath": f"{root}{path}"} if root else {}), "permissions": "rw"}
        for path in paths
        if devices.is_loaded or devices.exists(path)
    ]


def _common_edits(
    driver: DriverFiles, devices: NodeDevices, machine: str, hook: str, simulated: str
) -> dict[str, Any]:
    env = [_NO_OTHER_GPUS]
    mounts = [
        *(bind_mount(path, f"/usr/bin/{name}") for name, path in driver.binaries),
        *(bind_mount(host_path, path) for path, host_path in driver.firmware),
    ]
    if simulated:
        env.append(f"VGPU_SIM_MACHINE={_SIMULATED_DIRECTORY}")
        mounts.append(bind_mount(simulated, _SIMULATED_DIRECTORY, mode="rw"))
    hooks = []
    if hook:
        mounts += [bind_mount(library.host_path, library.path) for library in driver.libraries]
        hooks = hooks_of(hook, driver.libraries)
    else:
        mounts += mounts_by_name(driver.libraries, machine)
    helpers = [path for path in _HELPER_NODES if devices.exists(path)]
    nodes = _nodes([CONTROL_NODE, UVM_NODE, *helpers, *devices.more], devices)
    edits = {"env": env, "deviceNodes": nodes, "mounts": mounts, "hooks": hooks}
    return {key: value for key, value in edits.items() if value}
