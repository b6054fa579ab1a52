"""Bodies of calls, whole and in chunks, and what of them is refused."""

import io
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.http.call_body import Body, ClientGone, Meter, declared_length
from deviceplugin.http.calls import CallRefused, Limits

LIMITS = Limits(body_bytes=1000, bodies_bytes=1500)


def body(sent: bytes, meter: Meter | None = None) -> Body:
    return Body(io.BufferedReader(io.BytesIO(sent)), LIMITS, meter or Meter(1500))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, HTTPStatus.LENGTH_REQUIRED),
        ({"content-length": "1001"}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        ({"content-length": "-1"}, HTTPStatus.BAD_REQUEST),
        ({"content-length": "1_0"}, HTTPStatus.BAD_REQUEST),
        ({"content-length": "9" * 19}, HTTPStatus.BAD_REQUEST),
        ({"content-length": "٣"}, HTTPStatus.BAD_REQUEST),
        ({"transfer-encoding": "gzip"}, HTTPStatus.BAD_REQUEST),
        ({"transfer-encoding": "chunked", "content-length": "3"}, HTTPStatus.BAD_REQUEST),
    ],
)
def test_a_length_that_is_none_is_refused(headers: dict[str, str], status: HTTPStatus) -> None:
    with pytest.raises(CallRefused) as refused:
        declared_length(headers, LIMITS)
    assert refused.value.status == status


def test_a_length_or_chunks_are_taken() -> None:
    assert declared_length({"content-length": "1000"}, LIMITS) == 1000
    assert declared_length({"transfer-encoding": "Chunked"}, LIMITS) is None


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6))
def test_chunks_are_put_together(pieces: list[bytes]) -> None:
    sent = b"".join(b"%x;a=b\r\n%s\r\n" % (len(each), each) for each in pieces)

    assert body(sent + b"0\r\nTrailer: x\r\n\r\n").read(None) == b"".join(pieces)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"x\r\n", HTTPStatus.BAD_REQUEST),
        (b"\r\n", HTTPStatus.BAD_REQUEST),
        (b"-1\r\n", HTTPStatus.BAD_REQUEST),
        (b"1\r\nab\r\n", HTTPStatus.BAD_REQUEST),
        (b"1" * 300, HTTPStatus.BAD_REQUEST),
        (b"3e9\r\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        (b"1f4\r\n%s\r\n1f5\r\n" % (b"x" * 500), HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    ],
)
def test_chunks_that_are_none_are_refused(sent: bytes, status: HTTPStatus) -> None:
    with pytest.raises(CallRefused) as refused:
        body(sent).read(None)
    assert refused.value.status == status


@pytest.mark.parametrize("sent", [b"", b"3\r\nab", b"3\r\nabc\r\n", b"0\r\n"])
def test_a_client_that_goes_is_no_call(sent: bytes) -> None:
    with pytest.raises(ClientGone):
        body(sent).read(None)
    with pytest.raises(ClientGone):
        body(b"ab").read(3)


def test_bodies_together_have_a_limit_and_give_their_room_back() -> None:
    meter = Meter(1500)
    first, second = body(b"x" * 1000, meter), body(b"x" * 1000, meter)
    assert len(first.read(1000)) == 1000

    with pytest.raises(CallRefused) as refused:
        second.read(1000)
    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "try again" in str(refused.value)
    first.forget()
    second.forget()
    assert meter.take(1500) and not meter.take(1)
