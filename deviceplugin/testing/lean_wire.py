"""The wire of `lean_kubelet`: calls on bytes, and servers on bytes."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.kubelet.transport import dial

SERVICE = "v1beta1.DevicePlugin"
TIMEOUT_S = 30.0
_THREADS = 4
#: What the kubelet grants the readers of podresources.
LISTINGS_PER_SECOND, LISTINGS_BURST = 100.0, 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a plugin, and how long it took."""

    method: str
    resource: str
    seconds: float


class LeanPlugin:
    """One registered plugin."""

    def __init__(self, resource: str, socket: Path, changed: Callable[[], None]) -> None:
        """Dials it and begins to read its list.

        Raises:
            grpc.RpcError: nobody answers there.
        """
        self.resource = resource
        self.units: tuple[str, ...] = ()  # the healthy ones
        self.message_bytes = 0  # of the last list
        self._changed = changed
        self._channel = dial(socket)
        try:
            self.call("GetDevicePluginOptions", b"")
        except grpc.RpcError:
            self._channel.close()
            raise
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, method: str, request: bytes) -> tuple[bytes, float]:
        """Makes one call; returns the answer and the seconds it took.

        Raises:
            grpc.RpcError: it was refused.
        """
        invoke = self._channel.unary_unary(f"/{SERVICE}/{method}")
        started = time.perf_counter()
        answer = invoke(request, timeout=TIMEOUT_S, wait_for_ready=True)
        return answer, time.perf_counter() - started

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()
        self._reader.join(TIMEOUT_S)

    def _read(self) -> None:
        try:
            for message in self._channel.unary_stream(f"/{SERVICE}/ListAndWatch")(b""):
                devices = pb.ListAndWatchResponse.FromString(message).devices
                self.message_bytes = len(message)
                self.units = tuple(d.ID for d in devices if d.health == "Healthy")
                self._changed()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed by us
            pass
        self.units = ()


class RateLimit:
    """So many a second after a burst; its user synchronises it."""

    def __init__(self) -> None:
        self._tokens, self._refilled_at = LISTINGS_BURST, time.monotonic()

    def take(self) -> bool:
        """Returns whether one more is granted now."""
        now = time.monotonic()
        refilled = self._tokens + (now - self._refilled_at) * LISTINGS_PER_SECOND
        self._tokens, self._refilled_at = min(LISTINGS_BURST, refilled), now
        granted = self._tokens >= 1
        self._tokens -= granted
        return granted


def serve(socket: Path, service: str, methods: Mapping[str, Callable[[bytes, Any], bytes]]) -> Any:
    """Serves unary methods on a Unix socket and returns the server."""
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    handlers = {name: grpc.unary_unary_rpc_method_handler(f) for name, f in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server
