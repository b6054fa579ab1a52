"""Settings of every gRPC connection to and from the kubelet."""

from pathlib import Path
from typing import Any

import grpc

from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE

#: podresources names the devices of every plugin on the node; gRPC's own limit is 4 MiB.
ANSWER_LIMIT_BYTES = 16 << 20
_UNIT_BYTES = 63 + 2  # the longest name that Kubernetes allows, its tag and its length
#: The longest request is a GetPreferredAllocation with all units, twice. A limit of its own, since
#: many short names take ten times as much memory as they have bytes.
REQUEST_LIMIT_BYTES = 2 * MOST_UNITS_PER_RESOURCE * _UNIT_BYTES + 1024
#: A kubelet that was restarted is dialled again this soon, not after grpc's two minutes.
_RECONNECT_MS = 500

SERVER_OPTIONS = (("grpc.max_receive_message_length", REQUEST_LIMIT_BYTES),)
_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", ANSWER_LIMIT_BYTES),
    # grpc derives the authority from the socket's path, which the kubelet's server rejects.
    ("grpc.default_authority", "localhost"),
    ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
)


def dial(socket: Path) -> Any:
    """Returns a channel to a Unix socket; close it after use."""
    return grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)


def why(error: Any) -> str:
    """Returns what went wrong in a call, as a message."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error)
    return f"{code().name}: {details()}"
