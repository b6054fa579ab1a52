"""What `vgpuctl` may ask of the running agent, over HTTP on a Unix socket that only root opens.

``GET /v1/state`` gives the agent's state (`agent_state`); ``POST`` and ``DELETE`` of
``/v1/allocations/ID/override`` set and clear an `Override`. Both answer with the limits before and
after; what is not done is answered with ``{"message": …, "hint": …}``: 400 for a request that is
none, 404 for an allocation that is not there, 409 for a refusal.

`changed_limits` is the answer's form, which `vgpuctl set` prints.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import msgspec

from deviceplugin.log import event
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.policy.limit_changes import pending_values
from libvgpu.errors import UnknownAllocation, VgpuError
from libvgpu.limits import WHOLE_CORE_PERCENT, ContainerLimits, Family
from libvgpu.sizes import MAX_BYTES

from .message import Request, Response

_OVERRIDE = re.compile(r"/v1/allocations/([A-Za-z0-9-]{1,64})/override")
_STATE = "/v1/state"


class OverrideRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a POST: at least one value; one that is left out stays as it is."""

    core_percent: Annotated[int, msgspec.Meta(ge=1, le=WHOLE_CORE_PERCENT)] | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=1, le=MAX_BYTES)] | None = None
    compute: Literal["strict", "elastic", "off"] | None = None


class ControlApi:
    """The handler of the agent's socket."""

    def __init__(
        self,
        set_override: Callable[[str, Override], LimitChange],
        clear_override: Callable[[str], LimitChange],
        state: Callable[[], Mapping[str, Any]],
    ) -> None:
        """Makes the handler.

        Args:
            set_override: puts values into force for an allocation; raises VgpuError.
            clear_override: takes them back; raises VgpuError.
            state: what ``/v1/state`` says.
        """
        self._set, self._clear, self._state = set_override, clear_override, state

    def __call__(self, request: Request) -> Response:
        """Answers one request."""
        if request.path == _STATE:
            if request.method != "GET":
                return _not_allowed("GET")
            return _json(HTTPStatus.OK, self._state())
        match = _OVERRIDE.fullmatch(request.path)
        if match is None:
            return _problem(HTTPStatus.NOT_FOUND, f"{request.path[:80]} is nothing that is served")
        if request.method not in ("POST", "DELETE"):
            return _not_allowed("POST, DELETE")
        try:
            change = self._change(match[1], request)
        except msgspec.MsgspecError as error:
            return _problem(HTTPStatus.BAD_REQUEST, f"the override is not what it must be: {error}")
        except VgpuError as error:
            event(logging.WARNING, "override refused", allocation=match[1], reason=error.message)
            missing = isinstance(error, UnknownAllocation)
            status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.CONFLICT
            return _problem(status, error.message, error.hint)
        return _json(HTTPStatus.OK, changed_limits(match[1], change))

    def _change(self, allocation_id: str, request: Request) -> LimitChange:
        if request.method == "DELETE":
            return self._clear(allocation_id)
        asked = msgspec.json.decode(request.body, type=OverrideRequest)
        override = Override(asked.core_percent, asked.memory_bytes, asked.compute)
        if override == Override():
            raise msgspec.ValidationError(
                "it sets nothing; give core_percent, memory_bytes or compute"
            )
        return self._set(allocation_id, override)


def changed_limits(allocation_id: str, change: LimitChange) -> dict[str, Any]:
    """Returns what a change did, device by device."""
    return {
        "allocation": allocation_id,
        "owner": change.owner,
        "devices": [
            {
                "gpu_uuid": new.uuid,
                "old": _values(change.before, index),
                "new": _values(change.after, index),
                "pending": list(
                    pending_values(change.before.devices[index], new, change.after.family)
                ),
            }
            for index, new in enumerate(change.after.devices)
        ],
    }


def _values(limits: ContainerLimits, index: int) -> dict[str, Any]:
    device = limits.devices[index]
    mps = limits.family is Family.MPS
    return {
        "memory_bytes": device.memory_limit_bytes,
        "core_percent": device.core_percent,
        "compute": None if mps else device.compute_mode.name.lower(),
    }


def _json(status: int, value: Mapping[str, Any]) -> Response:
    return Response(status, json.dumps(value).encode() + b"\n", "application/json")


def _problem(status: int, message: str, hint: str | None = None) -> Response:
    return _json(status, {"message": message, "hint": hint})


def _not_allowed(allowed: str) -> Response:
    answer = _problem(HTTPStatus.METHOD_NOT_ALLOWED, f"allowed are: {allowed}")
    return Response(answer.status, answer.body, answer.content_type, (("Allow", allowed),))
