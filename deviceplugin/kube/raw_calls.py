"""Calls to the API server by their path: JSON there and back, and streams.

Safe to use from several threads. Errors are those of `api_client`; what the
server surely did nothing of is `ApiNotReached`, of all else that was no answer the outcome is not
known.
"""

import contextlib
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import httpx2
import msgspec
from lightkube.core.exceptions import ConfigError

from libvgpu.decoding import json_decoder

from .api_client import TRY_AGAIN, ApiRefused, ApiServer, ApiUnreachable
from .http_client import TIMEOUT_S

MOST_BYTES = 8 << 20
_MOST_OF_A_REASON = 64 << 10
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, ConfigError)


class ApiNotReached(ApiUnreachable):
    """Nothing of the call was done: it was not sent, or the server had no time for it."""


class AnswerTooLarge(ApiUnreachable):
    """The answer has more bytes than the call allows."""


class _Status(msgspec.Struct):
    """What the API server says of a failure."""

    message: str = ""


_STATUS = json_decoder(_Status)


def call(
    api: ApiServer,
    method: str,
    path: str,
    body: Any = None,
    params: Mapping[str, str] | None = None,
    most_bytes: int = MOST_BYTES,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Returns the answer's body.

    Args:
        body: what goes as JSON, as a merge patch where the method is PATCH; None for nothing.
        timeout_s: of each step, not of all.

    Raises:
        ApiUnreachable: there was no answer (`ApiNotReached`, `AnswerTooLarge` are such).
        ApiRefused: the server refused it.
    """
    content = None if body is None else msgspec.json.encode(body)
    with stream(api, method, path, params, content, timeout_s) as response:
        return _read(api, response, most_bytes)


@contextlib.contextmanager
def stream(
    api: ApiServer,
    method: str,
    path: str,
    params: Mapping[str, str] | None = None,
    content: bytes | None = None,
    read_timeout_s: float = TIMEOUT_S,
) -> Iterator[httpx2.Response]:
    """Gives an answer whose body is still to be read; the errors of reading are raised here, too.

    Raises:
        ApiUnreachable: there was no answer, or it broke off.
        ApiRefused: the server refused the call.
    """
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Content-Type": kind} if content is not None else {}
    timeout = httpx2.Timeout(TIMEOUT_S, read=read_timeout_s)
    try:
        client = api.http.get()
    except OSError as error:
        raise ApiNotReached(f"the CA of the API server cannot be read: {error.strerror}") from None
    try:
        with client.stream(
            method,
            path,
            params=dict(params or {}),
            content=content,
            headers=headers,
            timeout=timeout,
        ) as response:
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                _refuse(api, response)
            yield response
    except _NOT_SENT as error:
        raise ApiNotReached(f"the API server {api.where} is not reached: {error}") from None
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise ApiUnreachable(f"the API server {api.where} does not answer: {error}") from None


def _read(api: ApiServer, response: httpx2.Response, most_bytes: int) -> bytes:
    found = bytearray()
    for chunk in response.iter_bytes():
        found += chunk
        if len(found) > most_bytes:
            raise AnswerTooLarge(f"{api.where} answers with more than {most_bytes} bytes")
    return bytes(found)


def _refuse(api: ApiServer, response: httpx2.Response) -> None:
    status = response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise ApiNotReached("the API server has no time (status 429)")
    if status in TRY_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise ApiUnreachable(f"the API server answers with status {status}")
    try:
        message = _STATUS.decode(_read(api, response, _MOST_OF_A_REASON)).message
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        message = ""
    raise ApiRefused(status, message or "no reason given")
