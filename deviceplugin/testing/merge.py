"""What a runtime is told about one container: the plugins' answers, put together.

The kubelet merges the answers of a container's resources in no fixed order: the first value of a
key wins and a different second one is only logged. Here such a conflict is kept as a sentence,
because a plugin that relies on the order is wrong.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class MountOption:
    """One bind mount, absolute paths both."""

    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceOption:
    """One device node; ``permissions`` of ``rwm``."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The merged answers; ``conflicts`` has one sentence per key that two of them set apart."""

    envs: Mapping[str, str]
    mounts: tuple[MountOption, ...]
    devices: tuple[DeviceOption, ...]
    annotations: Mapping[str, str]
    cdi_devices: tuple[str, ...]
    conflicts: tuple[str, ...]


def merge_answers(answers: Iterable[tuple[str, pb.ContainerAllocateResponse]]) -> RunOptions:
    """Merges (resource, answer) pairs in the order given, first value wins."""
    envs: dict[str, tuple[str, str]] = {}
    annotations: dict[str, tuple[str, str]] = {}
    mounts: dict[str, tuple[str, MountOption]] = {}
    devices: dict[str, tuple[str, DeviceOption]] = {}
    cdi: dict[str, None] = {}
    conflicts: list[str] = []

    def put(kind: str, into: dict[str, tuple[str, T]], key: str, owner: str, value: T) -> None:
        first_owner, first = into.setdefault(key, (owner, value))
        if first != value:
            conflicts.append(f"{kind} {key} is {first!r} by {first_owner} but {value!r} by {owner}")

    for resource, answer in answers:
        for key, value in answer.envs.items():
            put("env", envs, key, resource, value)
        for key, value in answer.annotations.items():
            put("annotation", annotations, key, resource, value)
        for m in answer.mounts:
            mount = MountOption(m.container_path, m.host_path, m.read_only)
            put("mount", mounts, m.container_path, resource, mount)
        for d in answer.devices:
            device = DeviceOption(d.container_path, d.host_path, d.permissions)
            put("device", devices, d.container_path, resource, device)
        cdi.update((c.name, None) for c in answer.cdi_devices)
    return RunOptions(
        envs={key: value for key, (_, value) in envs.items()},
        mounts=tuple(mount for _, mount in mounts.values()),
        devices=tuple(device for _, device in devices.values()),
        annotations={key: value for key, (_, value) in annotations.items()},
        cdi_devices=tuple(cdi),
        conflicts=tuple(conflicts),
    )
