"""The pages of the agent's HTTP ports; they can only be read."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from wsgiref.types import WSGIApplication

from werkzeug.exceptions import HTTPException, MethodNotAllowed, NotFound
from werkzeug.routing import Rule
from werkzeug.wrappers import Request, Response

from .application import FAULT, application

TEXT = "text/plain; charset=utf-8"


def pages(by_path: Mapping[str, Callable[[Request], Response]]) -> WSGIApplication:
    """Returns an application that serves each page at its path."""
    known = ", ".join(by_path)

    def tell(error: HTTPException) -> tuple[str, str]:
        if isinstance(error, NotFound):
            return f"no such page; there are: {known}\n", TEXT
        if isinstance(error, MethodNotAllowed):
            return "pages are only read: use GET\n", TEXT
        return f"{error.description or FAULT}\n", TEXT

    routes = [Rule(path, methods=["GET"], endpoint=page) for path, page in by_path.items()]
    return application(routes, tell)


def moved(request: Request) -> Response:
    """Answers a `kubectl vgpu` that is older than this agent."""
    return line(
        HTTPStatus.GONE,
        "this page tells of all tenants, so it is only served inside the agent's pod; "
        "use the kubectl-vgpu of the agent's version, which reads it there",
    )


def line(status: int, text: str) -> Response:
    """Returns a page of one line."""
    return Response(f"{text}\n", status, content_type=TEXT)
