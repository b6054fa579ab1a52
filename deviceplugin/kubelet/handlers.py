"""The protocol's methods on bytes: requests are decoded here, not by gRPC.

A request that grpcio (1.85) cannot decode gets an answer that explains nothing, and 19 KiB of the
call stay for ever: its thread waits until the caller closes and then tries to send a second status.
Here such a request is refused like any other, with a reason, and nothing stays.

Bytes also go out: a list is encoded once for all who listen.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError

from deviceplugin import runtime
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.log import LOGGER, event
from deviceplugin.model.notices import EventReason, node_notice
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from libvgpu.errors import VgpuError

SERVICE = "v1beta1.DevicePlugin"
_PRE_START = "PreStartContainer"
OPTIONS = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


class MalformedRequestError(VgpuError):
    """A request that no kubelet sends."""


class PluginMethods(Protocol):
    """What answers; the methods of `plugin_server.PluginServer`."""

    resource: str

    def watch(self, stopping: runtime.Event, context: Any) -> Iterator[bytes]:
        """ListAndWatch: yields encoded lists."""

    def prefer(self, request: Any) -> Any:
        """GetPreferredAllocation."""

    def allocate(self, request: Any) -> Any:
        """Allocate."""

    def pre_start(self, request: Any) -> Any:
        """PreStartContainer."""


def method_handlers(plugin: PluginMethods, stopping: runtime.Event) -> dict[str, Any]:
    """Returns gRPC's handlers of all methods, by name.

    Args:
        plugin: answers.
        stopping: set when the server is to end; ends the streams.
    """

    def unary(method: str, message: Any, answer: Callable[[Any], Any]) -> Any:
        return grpc.unary_unary_rpc_method_handler(
            partial(_answer, plugin.resource, method, message, answer)
        )

    return {
        "GetDevicePluginOptions": unary("GetDevicePluginOptions", pb.Empty, lambda _: OPTIONS),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(
            lambda payload, context: plugin.watch(stopping, context)
        ),
        "GetPreferredAllocation": unary(
            "GetPreferredAllocation", pb.PreferredAllocationRequest, plugin.prefer
        ),
        "Allocate": unary("Allocate", pb.AllocateRequest, plugin.allocate),
        _PRE_START: unary(_PRE_START, pb.PreStartContainerRequest, plugin.pre_start),
    }


def _answer(
    resource: str,
    method: str,
    message: Any,
    answer: Callable[[Any], Any],
    payload: bytes,
    context: Any,
) -> bytes:
    """Answers, or aborts with a sentence; a fault of ours must not look like a dead plugin."""
    try:
        response: bytes = answer(_decode(method, message, payload)).SerializeToString()
        return response
    except VgpuError as error:
        event(
            logging.WARNING,
            "request refused",
            # A refused start has a line of its own, which knows whose it is.
            notice=None
            if method == _PRE_START
            else node_notice(EventReason.ALLOCATION_REFUSED, error.message),
            method=method,
            resource=resource,
            reason=error.message,
        )
        code = grpc.StatusCode.FAILED_PRECONDITION
        if isinstance(error, MalformedRequestError):
            code = grpc.StatusCode.INVALID_ARGUMENT
        text = error.message + (f" (hint: {error.hint})" if error.hint else "")
    except Exception as error:
        LOGGER.exception("%s of %s failed", method, resource)
        code, text = grpc.StatusCode.INTERNAL, f"the node agent failed: {error!r}"
    context.abort(code, text)
    raise AssertionError("abort returned")


def _decode(method: str, message: Any, payload: bytes) -> Any:
    """Returns the request.

    Raises:
        MalformedRequestError: it is none, names no container, or more units than there can be.
    """
    try:
        request = message.FromString(payload)
    except DecodeError:
        raise MalformedRequestError(
            f"the {len(payload)} bytes sent to {method} are not a valid {message.DESCRIPTOR.name}"
        ) from None
    containers = getattr(request, "container_requests", None)
    if containers is not None and not containers:
        raise MalformedRequestError(f"{method} names no container; ask for one")
    units = 0
    for part in (request,) if containers is None else containers:
        for name in ("devices_ids", "available_deviceIDs", "must_include_deviceIDs"):
            units = max(units, len(getattr(part, name, ())))
    if units > MOST_UNITS_PER_RESOURCE:
        raise MalformedRequestError(
            f"{method} names {units} units; a resource has at most {MOST_UNITS_PER_RESOURCE}"
        )
    return request
