"""What the kubelet sends and keeps: requests of its device manager, listings, its checkpoint."""

import base64
import contextlib
import json
from pathlib import Path
from tempfile import mkdtemp

from google.protobuf.message import DecodeError
from msgspec import inspect

from deviceplugin.kube.pod_wire import row_of
from deviceplugin.kubelet import handlers, pods_api
from deviceplugin.kubelet.answer_codec import mounts_of
from deviceplugin.kubelet.podresources import listed_in
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as device_plugin
from deviceplugin.kubelet.protos import podresources_v1_pb2 as podresources
from deviceplugin.kubelet.protos import pods_v1alpha1_pb2 as pods
from deviceplugin.recovery import kubelet_checkpoint
from fuzz.shapes import Shapes, words_of

_REQUESTS = (
    device_plugin.Empty,
    device_plugin.AllocateRequest,
    device_plugin.PreferredAllocationRequest,
    device_plugin.PreStartContainerRequest,
)
_DOMAIN = "nvidia.com"
_FILE = inspect.type_info(kubelet_checkpoint._File)
_REGISTERED = inspect.type_info(kubelet_checkpoint._RegisteredFile)
_WORDS = [*dict.fromkeys([*words_of(_FILE), *words_of(_REGISTERED)]), f"{_DOMAIN}/vgpu-core",
          f"{_DOMAIN}/gpu", "GPU-1::c0", "-1", "0"]  # fmt: skip
_FOLDER = Path(mkdtemp(prefix="vgpu-fuzz-"))


def one(data: bytes) -> None:
    """Reads one message, or the file."""
    shapes = Shapes(data)
    how = shapes.byte()
    if how < 100:
        _request(how, shapes.rest())
    elif how < 130:
        mounts_of(shapes.rest())
    elif how < 200:
        _listing(how, shapes.rest())
    else:
        _checkpoint(shapes, how)


def _request(how: int, payload: bytes) -> None:
    try:
        request = handlers._decode("X", _REQUESTS[how % len(_REQUESTS)], payload)
    except handlers.MalformedRequestError:
        return
    assert type(request).FromString(request.SerializeToString()) == request


def _listing(how: int, payload: bytes) -> None:
    try:
        if how & 1:
            listed_in(podresources.ListPodResourcesResponse.FromString(payload), _DOMAIN)
        else:
            for pod in pods.ListPodsResponse.FromString(payload).pods:
                row_of(pods_api._pod(pod, _DOMAIN), _DOMAIN)
    except DecodeError:
        return


def _checkpoint(shapes: Shapes, how: int) -> None:
    path = _FOLDER / "device-plugins" / kubelet_checkpoint.NAME
    path.parent.mkdir(exist_ok=True)
    content = shapes.like(_REGISTERED if how & 2 else _FILE, _WORDS)
    for entry in _entries(content) if how & 4 else ():
        entry["ResourceName"] = f"{_DOMAIN}/vgpu-core"
        entry["AllocResp"] = base64.b64encode(shapes.some()).decode()
    path.write_bytes(shapes.rest() if how & 1 else json.dumps(content).encode())
    reading = kubelet_checkpoint.KubeletCheckpoint(_FOLDER, _DOMAIN, mounts_of).read()
    assert reading.problem is None or not reading.entries
    with contextlib.suppress(ValueError):
        kubelet_checkpoint.registered_devices(path)


def _entries(content: object) -> list[dict[str, object]]:
    data = content.get("Data") if isinstance(content, dict) else None
    entries = data.get("PodDeviceEntries") if isinstance(data, dict) else None
    return [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
