"""The stand-in's ``kubelet_internal_checkpoint``, in the form of kubelets from 1.20 on.

The real one's checksum is over Go's own printing of the data; here it is the CRC-32 of the JSON
text of ``Data``, which serves the same end: a file that was changed by somebody else is not
believed. It is written to another name and renamed, like the real one; a power cut is not this
stand-in's trade, so nothing waits for the disk.
"""

import base64
import binascii
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb

from .plugin_client import Plugin
from .records import AdmittedContainer, AdmittedPod

NAME = "kubelet_internal_checkpoint"
_NO_NODE = -1  # where the kubelet puts units without topology


@dataclass(frozen=True, slots=True)
class Restored:
    """What one entry says of a container and a resource."""

    pod_uid: str
    container: str
    resource: str
    units: tuple[str, ...]
    numa: Mapping[str, tuple[int, ...]]
    answer: pb.ContainerAllocateResponse


def write(path: Path, pods: Iterable[AdmittedPod], plugins: Mapping[str, Plugin]) -> None:
    """Writes what the containers have on record, and which healthy units each plugin offers."""
    entries = [
        _entry(pod, container, resource)
        for pod in pods
        for container in pod.containers
        for resource in list(container.devices)
    ]
    registered = {
        resource: [name for name, device in plugin.devices.items() if device.healthy]
        for resource, plugin in plugins.items()
    }
    text = json.dumps({"PodDeviceEntries": entries or None, "RegisteredDevices": registered})
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f'{{"Data":{text},"Checksum":{zlib.crc32(text.encode())}}}')
    temporary.replace(path)


def read(path: Path) -> tuple[list[Restored], set[str]]:
    """Returns the entries and the resources that were registered; nothing where there is no file.

    Raises:
        ValueError: the file is not one that `write` left there.
    """
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return [], set()
    try:
        data = document["Data"]
        if document["Checksum"] != zlib.crc32(json.dumps(data).encode()):
            raise ValueError("its checksum does not fit")
        entries = [_restored(row) for row in data["PodDeviceEntries"] or ()]
        return entries, set(data["RegisteredDevices"])
    except (KeyError, TypeError, AttributeError, DecodeError, binascii.Error) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None


def _entry(pod: AdmittedPod, container: AdmittedContainer, resource: str) -> dict[str, Any]:
    by_node: dict[str, list[str]] = {}
    for unit in container.devices[resource]:
        for node in container.numa.get(unit) or (_NO_NODE,):
            by_node.setdefault(str(node), []).append(unit)
    answer = container.answers[resource].SerializeToString()
    return {
        "PodUID": pod.uid,
        "ContainerName": container.manifest.name,
        "ResourceName": resource,
        "DeviceIDs": by_node,
        "AllocResp": base64.b64encode(answer).decode(),
    }


def _restored(row: Any) -> Restored:
    numa: dict[str, tuple[int, ...]] = {}
    for node, units in row["DeviceIDs"].items():
        for unit in units:
            nodes = () if int(node) == _NO_NODE else (int(node),)
            numa[unit] = numa.get(unit, ()) + nodes
    answer = pb.ContainerAllocateResponse()
    answer.ParseFromString(base64.b64decode(row["AllocResp"]))
    return Restored(
        row["PodUID"], row["ContainerName"], row["ResourceName"], tuple(numa), numa, answer
    )
