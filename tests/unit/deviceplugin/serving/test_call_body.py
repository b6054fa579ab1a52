"""Bodies of calls, whole and in chunks, and what of them is refused."""

import io
from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.serving.call_body import Body, declared_length
from deviceplugin.serving.call_places import ClientGone
from deviceplugin.serving.calls import CallRefused, Limits

LIMITS = Limits(body_bytes=1000, bodies_bytes=1500)


class Bytes:
    """Room for so many bytes."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> bool:
        self.left -= count
        return self.left >= 0


def body(sent: bytes, room: int = 1500) -> Body:
    return Body(io.BufferedReader(io.BytesIO(sent)), LIMITS, Bytes(room).take)


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


def test_a_body_for_which_there_is_no_room_is_told_to_come_again() -> None:
    with pytest.raises(CallRefused) as refused:
        body(b"x" * 1000, room=999).read(1000)

    assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert "try again" in str(refused.value)
