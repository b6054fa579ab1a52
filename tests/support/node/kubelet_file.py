"""The kubelet's checkpoint as bytes, for tests that bring their own."""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.recovery.kubelet_checkpoint import NAME

Units = Sequence[str] | Mapping[str, Sequence[str]]


def answer(allocation: str = "x1", build: str = "ab12", run_dir: str = "/run/vgpu") -> bytes:
    """Returns an answer of ours to Allocate as the kubelet keeps it."""
    mounts = {
        "/run/vgpu/limits": f"{run_dir}/allocations/{allocation}/limits",
        f"/run/vgpu/lib/{build}/libvgpu.so": f"/var/lib/vgpu/lib/{build}/libvgpu.so",
    }
    response = pb.ContainerAllocateResponse(
        mounts=[pb.Mount(container_path=c, host_path=h) for c, h in mounts.items()]
    )
    return bytes(response.SerializeToString())


def row(
    resource: str,
    units: Units,
    pod: str = "pod-1",
    container: str = "c0",
    response: bytes | None = None,
) -> dict[str, Any]:
    """Returns one entry of the file."""
    return {
        "PodUID": pod,
        "ContainerName": container,
        "ResourceName": resource,
        "DeviceIDs": units if isinstance(units, Mapping) else {"-1": list(units)},
        "AllocResp": base64.b64encode(answer() if response is None else response).decode(),
    }


def content(rows: Sequence[dict[str, Any]] | None, **more: Any) -> bytes:
    """Returns the whole file."""
    data = {"PodDeviceEntries": rows, "RegisteredDevices": {"nvidia.com/vgpu-core": ["GPU-0::c0"]}}
    return json.dumps({"Data": data, "Checksum": 123, **more}).encode()


def write(kubelet_dir: Path, data: bytes) -> Path:
    """Puts the file where the kubelet has it, as it does; returns the path."""
    path = kubelet_dir / "device-plugins" / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
    return path
