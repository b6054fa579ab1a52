"""HTTP/1.1 requests and responses as bytes, as far as the agent needs them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

HEAD_BYTES = 8 << 10
BODY_BYTES = 4 << 10
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request; header names in lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """One answer; length and end of connection are added by `encode`."""

    status: int
    body: bytes
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


class BadRequest(Exception):  # noqa: N818 - the name of its status
    """What came is no request that is served; its text says why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def parse(data: bytes) -> Request | None:
    """Returns the request that ``data`` begins with, None while it is not whole.

    Raises:
        BadRequest: it is too large, or not one.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    if len(head) > HEAD_BYTES:
        raise BadRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES} bytes of headers"
        )
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the first line is not METHOD /PATH HTTP/1.1")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header has no colon")
        headers[name.strip().lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "give the body's length in content-length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "content-length is not a number")
    if len(length) > len(str(BODY_BYTES)) or int(length) > BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body may have {BODY_BYTES} bytes")
    if len(body) < int(length):
        return None
    path, _, query = words[1].partition("?")
    return Request(words[0], path, query, headers, body[: int(length)])


def encode(response: Response, *, with_body: bool = True) -> bytes:
    """Returns the bytes of an answer that ends its connection."""
    try:
        phrase = HTTPStatus(response.status).phrase
    except ValueError:
        phrase = ""
    lines = [
        f"HTTP/1.1 {int(response.status)} {phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in response.headers),
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head + response.body if with_body else head


def plain(status: int, text: str) -> Response:
    """Returns an answer of one line."""
    return Response(status, text.encode() + b"\n")


def pages(by_path: Mapping[str, Handler]) -> Handler:
    """Returns a handler of pages that can only be read."""

    def handle(request: Request) -> Response:
        page = by_path.get(request.path)
        if page is None:
            known = ", ".join(by_path)
            return plain(HTTPStatus.NOT_FOUND, f"no such page; there are: {known}")
        if request.method not in ("GET", "HEAD"):
            refusal = plain(HTTPStatus.METHOD_NOT_ALLOWED, "pages are only read: use GET")
            return Response(refusal.status, refusal.body, headers=(("Allow", "GET, HEAD"),))
        return page(request)

    return handle
