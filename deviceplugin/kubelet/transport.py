"""Settings of every gRPC connection to and from the kubelet."""

from pathlib import Path
from typing import Any

import grpc

#: GetPreferredAllocation carries every free unit; the default of 4 MiB is too small on big nodes.
MESSAGE_LIMIT_BYTES = 16 << 20
#: A kubelet that was restarted is dialled again this soon, not after grpc's two minutes.
_RECONNECT_MS = 500

SERVER_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_LIMIT_BYTES),
    ("grpc.max_send_message_length", MESSAGE_LIMIT_BYTES),
)
_CHANNEL_OPTIONS = (
    *SERVER_OPTIONS,
    # grpc derives the authority from the socket's path, which the kubelet's server rejects.
    ("grpc.default_authority", "localhost"),
    ("grpc.min_reconnect_backoff_ms", _RECONNECT_MS),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS),
)


def dial(socket: Path) -> Any:
    """Returns a channel to a Unix socket; close it after use."""
    return grpc.insecure_channel(f"unix:{socket}", options=_CHANNEL_OPTIONS)


def why(error: Any) -> str:
    """Returns what went wrong in a call, in words."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error)
    return f"{code().name}: {details()}"
