"""Which GPUs a container sees: the stand-in for what NVIDIA's runtimes read of an answer.

In their order: CDI names, of the answer's own field and of annotations; else mounts of /dev/null
under the directory for lists; else the variable, which the image or the pod may have set. A device
is named by UUID or index, as the answer does.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deviceplugin.model.device_forms import DEFAULT_ANNOTATION_PREFIX, DEFAULT_CDI_KIND
from deviceplugin.store.container_answer import LIST_DIRECTORY, VISIBLE_DEVICES
from deviceplugin.testing import RunOptions
from libvgpu.errors import VgpuError

#: Kinds of CDI names that are GPUs: what `nvidia-ctk cdi generate` writes, and the agent's default.
_GPU_KINDS = ("nvidia.com/gpu", DEFAULT_CDI_KIND)
_NO_DEVICES = ("void", "none", "")
_INDEX = re.compile(r"\d{1,4}")


@dataclass(frozen=True, slots=True)
class Visible:
    """What a container sees.

    Attributes:
        names: UUIDs or indexes; None means all GPUs.
        left_out: CDI names of devices that are no GPUs: there are no CDI files here.
    """

    names: tuple[str, ...] | None
    left_out: tuple[str, ...] = ()


def visible(env: Mapping[str, str], options: RunOptions) -> Visible:
    """Returns what a container sees.

    Args:
        env: all of its environment.
        options: the plugins' merged answer.
    """
    asked = dict.fromkeys(_cdi_names(options))
    gpus = [name.partition("=")[2] for name in asked if _kind(name) in _GPU_KINDS]
    left_out = tuple(name for name in asked if _kind(name) not in _GPU_KINDS)
    if not gpus:
        gpus = [
            mount.container_path.removeprefix(f"{LIST_DIRECTORY}/")
            for mount in options.mounts
            if mount.host_path == "/dev/null"
            and mount.container_path.startswith(f"{LIST_DIRECTORY}/")
        ]
    if not gpus:
        value = env.get(VISIBLE_DEVICES, "")
        gpus = [] if value in _NO_DEVICES else value.split(",")
    return Visible(None if "all" in gpus else tuple(gpus), left_out)


def uuids_of(names: Sequence[str], node: Callable[[], Sequence[str]]) -> list[str]:
    """Returns the UUIDs of GPUs named by UUID or index.

    Args:
        node: returns the UUIDs of the node's GPUs, by index; asked only where it is needed.

    Raises:
        VgpuError: an index that no GPU has; a runtime refuses the container too.
    """
    found = []
    for name in names:
        if not _INDEX.fullmatch(name):
            found.append(name)
            continue
        uuids = node()
        if int(name) >= len(uuids):
            raise VgpuError(f"GPU {name} is unknown: this node has {len(uuids)}")
        found.append(uuids[int(name)])
    return found


def _kind(name: str) -> str:
    return name.partition("=")[0]


def _cdi_names(options: RunOptions) -> Iterator[str]:
    yield from options.cdi_devices
    for key, value in options.annotations.items():
        if key.partition("/")[0].endswith(DEFAULT_ANNOTATION_PREFIX.rstrip("/")):
            yield from value.split(",")
