"""WSGI applications from routes: which handler answers which path, and how a failure is answered.

Handlers take a request and the route's arguments and return a response; a path or a method that no
route has, and a fault of ours, are answered through the application's ``tell``.
"""

from collections.abc import Callable, Iterable, Mapping
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.exceptions import HTTPException, InternalServerError
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from deviceplugin.log import LOGGER

FAULT = "the node agent failed; see its log"


def application(
    routes: Iterable[Rule],
    tell: Callable[[HTTPException], tuple[str, str]],
    converters: Mapping[str, type[BaseConverter]] | None = None,
) -> WSGIApplication:
    """Returns an application.

    Args:
        routes: their endpoints are the handlers.
        tell: returns body and content type of the answer to a request that fails.
        converters: what the arguments of the routes may be, by the name that the routes have it by.
    """
    paths = Map(routes, merge_slashes=False, converters=converters)

    def serve(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        try:
            handler, arguments = paths.bind("").match(request.path, request.method)
            response: Response = handler(request, **arguments)
        except HTTPException as error:
            response = _told(error, environ, tell)
        except Exception:  # a fault of ours is an answer, and its trace is for the log
            LOGGER.exception("%s %s failed", request.method, request.path)
            response = _told(InternalServerError(FAULT), environ, tell)
        return response(environ, start_response)

    return serve


def _told(
    error: HTTPException,
    environ: WSGIEnvironment,
    tell: Callable[[HTTPException], tuple[str, str]],
) -> Response:
    answer = error.get_response(environ)  # with the header Allow, where a method is not allowed
    assert isinstance(answer, Response)
    text, answer.content_type = tell(error)
    answer.set_data(text)
    return answer
