"""What the webhook serves: reviews at ``/pods`` and probes at ``/healthz``."""

import socket
from http import HTTPStatus

from deviceplugin.serving.call_server import CallServer
from deviceplugin.serving.calls import TEXT, Answer, Call, CallRefused, Limits
from deviceplugin.serving.certificate import Certificate

from .pod_patch import PodRules
from .review import ReviewError, answer

#: Larger than what an API server takes for one object (3 MiB), which a review holds once here.
MOST_BYTES = 4 << 20
#: What is decoded of them has to fit into the memory that the chart gives it.
_MOST_BYTES_AT_ONCE = 16 << 20


def webhook_server(
    listening: socket.socket, certificate: Certificate, rules: PodRules
) -> CallServer:
    """Returns a server that takes over a listening socket."""

    def review(call: Call) -> Answer:
        try:
            return Answer(answer(call.body, rules))
        except ReviewError as error:
            raise CallRefused(HTTPStatus.BAD_REQUEST, str(error)) from None

    return CallServer(
        listening,
        {
            ("POST", "/pods"): review,
            ("GET", "/healthz"): lambda call: Answer(b"ok\n", kind=TEXT),
        },
        certificate,
        Limits(body_bytes=MOST_BYTES, bodies_bytes=_MOST_BYTES_AT_ONCE),
    )
