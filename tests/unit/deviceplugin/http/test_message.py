"""Requests are taken whole or not at all, and are bounded."""

import contextlib
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.http.message import (
    BODY_BYTES,
    HEAD_BYTES,
    BadRequest,
    Request,
    Response,
    encode,
    pages,
    parse,
    plain,
)

GET = b"GET /metrics?name=a HTTP/1.1\r\nHost: x\r\nAccept:  text/plain \r\n\r\n"
POST = b"POST /v1 HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"


def test_a_whole_request_is_taken_apart() -> None:
    request = parse(GET)

    assert request is not None
    assert (request.method, request.path, request.query) == ("GET", "/metrics", "name=a")
    assert request.headers == {"host": "x", "accept": "text/plain"}
    assert request.body == b""


@pytest.mark.parametrize("data", [GET, POST])
def test_nothing_is_taken_before_the_last_byte(data: bytes) -> None:
    assert all(parse(data[:n]) is None for n in range(len(data)))
    assert parse(data) is not None


def test_what_follows_the_body_is_left_out() -> None:
    request = parse(POST + b"GET / HTTP/1.1")

    assert request is not None and request.body == b"body"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"x" * (HEAD_BYTES + 1), HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"GET /\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET http://x/ HTTP/1.1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"\x16\x03\x01\x02\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"GET / HTTP/1.1\r\nnonsense\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", HTTPStatus.LENGTH_REQUIRED),
        (
            f"POST / HTTP/1.1\r\nContent-Length: {BODY_BYTES + 1}\r\n\r\n".encode(),
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
        (
            b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ),
    ],
)
def test_what_is_no_request_has_a_status(data: bytes, status: HTTPStatus) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(data)

    assert caught.value.status is status


def test_an_answer_ends_its_connection() -> None:
    answer = Response(200, b"body", headers=(("Allow", "GET"),))

    head, _, body = encode(answer).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Content-Type: text/plain; charset=utf-8",
        b"Content-Length: 4",
        b"Connection: close",
        b"Allow: GET",
    ]
    assert body == b"body"
    assert encode(answer, with_body=False) == head + b"\r\n\r\n"


def test_pages_are_only_read() -> None:
    handle = pages({"/a": lambda request: plain(200, "it")})

    assert handle(Request("GET", "/a")).body == b"it\n"
    assert handle(Request("HEAD", "/a")).status == 200
    assert handle(Request("POST", "/a")).status == HTTPStatus.METHOD_NOT_ALLOWED
    unknown = handle(Request("GET", "/b"))
    assert unknown.status == HTTPStatus.NOT_FOUND
    assert b"/a" in unknown.body


@given(st.binary(max_size=200) | st.text("GETPOS /1.:\r\nHoentLgh-", max_size=80).map(str.encode))
def test_nothing_that_comes_does_more_than_be_refused(data: bytes) -> None:
    with contextlib.suppress(BadRequest):
        request = parse(data + b"\r\n\r\n")
        assert request is None or request.path.startswith("/")
