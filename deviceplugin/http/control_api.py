"""What `vgpuctl` may ask of the running agent, over HTTP on a Unix socket that only root opens.

``GET /v1/state`` gives the agent's state (`agent_state`), ``GET /v1/config`` every value of its
config with where it comes from, ``GET /metrics`` what scrapers get; ``POST`` and ``DELETE`` of
``/v1/allocations/ID/override`` set an `Override` and take it back. Both answer with the limits
before and after (`ChangedLimits`). A request that fails is answered with a `Problem`: 400 if it
cannot be read, 404 if no allocation has that ID, 409 if the change is refused.
"""

import logging
from collections.abc import Callable, Iterable
from http import HTTPStatus
from wsgiref.types import StartResponse, WSGIEnvironment

import msgspec
from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import BaseConverter, Rule
from werkzeug.wrappers import Request, Response

from deviceplugin.log import event
from deviceplugin.model.overrides import LimitChange, Override
from deviceplugin.pages.changes import OVERRIDE, Problem
from deviceplugin.pages.config import ConfigInForce
from deviceplugin.pages.state import AgentReport
from deviceplugin.policy.limits.changes import changed_limits
from libvgpu.errors import UnknownAllocation, VgpuError

from .application import FAULT, application

_JSON = "application/json"


class _AllocationId(BaseConverter):
    """What an allocation's id may be in a path."""

    regex = "[A-Za-z0-9-]{1,64}"


class ControlApi:
    """The WSGI application behind the agent's socket."""

    def __init__(
        self,
        set_override: Callable[[str, Override | None], LimitChange],
        state: Callable[[], AgentReport],
        config: Callable[[], ConfigInForce] = lambda: ConfigInForce("", ()),
        metrics: Callable[[Request], Response] = lambda request: Response(),
    ) -> None:
        """Makes the application.

        Args:
            set_override: puts an override into force for an allocation, or with None removes the
                allocation's override; raises VgpuError.
            state: what ``/v1/state`` says.
            config: what ``/v1/config`` says.
            metrics: the page of that name.
        """
        self._set, self._state, self._config = set_override, state, config
        override = "/v1/allocations/<allocation:allocation_id>/override"
        self._app = application(
            [
                Rule("/v1/state", methods=["GET"], endpoint=self._tell_state),
                Rule("/metrics", methods=["GET"], endpoint=metrics),
                Rule("/v1/config", methods=["GET"], endpoint=self._tell_config),
                Rule(override, methods=["POST", "DELETE"], endpoint=self._override),
            ],
            _tell,
            {"allocation": _AllocationId},
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answers one request."""
        return self._app(environ, start_response)

    def _tell_state(self, request: Request) -> Response:
        return _json(HTTPStatus.OK, self._state())

    def _tell_config(self, request: Request) -> Response:
        return _json(HTTPStatus.OK, self._config())

    def _override(self, request: Request, allocation_id: str) -> Response:
        override = None
        try:
            if request.method == "POST":
                override = OVERRIDE.decode(request.get_data()).override()
                if override == Override():
                    raise msgspec.ValidationError(
                        "it sets nothing; give core_percent, memory_bytes or compute"
                    )
            change = self._set(allocation_id, override)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
            return _problem(HTTPStatus.BAD_REQUEST, f"the override is not valid: {error}")
        except VgpuError as error:
            event(
                logging.WARNING, "override refused", allocation=allocation_id, reason=error.message
            )
            missing = isinstance(error, UnknownAllocation)
            status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.CONFLICT
            return _problem(status, error.message, error.hint)
        return _json(HTTPStatus.OK, changed_limits(allocation_id, change))


def _json(status: HTTPStatus, value: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(value) + b"\n", status, content_type=_JSON)


def _problem(status: HTTPStatus, message: str, hint: str | None = None) -> Response:
    return _json(status, Problem(message, hint))


def _tell(error: HTTPException) -> tuple[str, str]:
    """Returns the answer to what is asked of nothing that is served."""
    message = error.description or FAULT
    if isinstance(error, NotFound):
        message = "nothing is served at this path"
    if isinstance(error, MethodNotAllowed):
        allowed = sorted(set(error.valid_methods or ()) - {"HEAD"})
        message = f"allowed are: {', '.join(allowed)}"
    return msgspec.json.encode(Problem(message)).decode() + "\n", _JSON
