"""A list of objects of the API server, page by page, decoded into the few fields that are kept.

An object that cannot be decoded is left out and told to the caller; the others stay. Pages that
are larger than `MOST_PAGE_BYTES` are asked for again with fewer objects each.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from libvgpu.decoding import json_decoder

from .api_client import ApiRefused, ApiServer, ApiUnreachable
from .raw_calls import AnswerTooLarge, call

PAGE = 500
MOST_PAGE_BYTES = 64 << 20
_PAGE_TIMEOUT_S = 30.0
_STARTS = 3

_T = TypeVar("_T")


class _ListMetadata(msgspec.Struct, rename="camel"):
    """Where a list stands; ``continue_`` is empty on the last page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, Generic[_T]):
    """One page of a list."""

    metadata: _ListMetadata
    items: list[_T] | None = None


class ObjectList(Generic[_T]):
    """Lists the objects of one path."""

    def __init__(
        self,
        api: ApiServer,
        path: str,
        params: Mapping[str, str],
        kind: type[_T],
        trim: Callable[[_T], _T | None] | None,
        on_malformed: Callable[[bytes], None],
    ) -> None:
        """Asks for nothing yet.

        Args:
            trim: see `list_watch.Follower`.
            on_malformed: gets the JSON of an object that cannot be decoded.
        """
        self._api, self._path, self._params = api, path, params
        self._trim, self._on_malformed = trim, on_malformed
        self._one = json_decoder(kind)
        page: Any = _Page
        self._all = json_decoder(page[kind])
        self._each = json_decoder(page[msgspec.Raw])
        self._limit = PAGE

    def read(self) -> tuple[list[_T], str]:
        """Returns all objects and the resource version of the list.

        Raises:
            ApiUnreachable: there was no whole answer.
            ApiRefused: the server refused it.
        """
        starts_left = _STARTS
        while True:
            try:
                return self._read()
            except ApiRefused as error:
                # The snapshot that the pages are of is gone; only another one can be read.
                starts_left -= 1
                if error.status != HTTPStatus.GONE:
                    raise
                if not starts_left:
                    raise ApiUnreachable(f"the pages of {self._path} expire too early") from None
            except AnswerTooLarge:
                if self._limit == 1:
                    raise
                self._limit = max(1, self._limit // 4)

    def _read(self) -> tuple[list[_T], str]:
        found: list[_T] = []
        token = ""
        while True:
            params = {**self._params, "limit": str(self._limit)}
            if token:
                params["continue"] = token
            content = call(
                self._api,
                "GET",
                self._path,
                params=params,
                most_bytes=MOST_PAGE_BYTES,
                timeout_s=_PAGE_TIMEOUT_S,
            )
            page = self._decoded(content)
            for each in page.items or ():
                kept = self._trim(each) if self._trim is not None else each
                if kept is not None:
                    found.append(kept)
            token = page.metadata.continue_
            if not token:
                return found, page.metadata.resource_version

    def _decoded(self, content: bytes) -> _Page[_T]:
        try:
            page: _Page[_T] = self._all.decode(content)
        except (msgspec.ValidationError, UnicodeError, RecursionError):
            return self._decoded_one_by_one(content)
        except msgspec.MsgspecError as error:
            raise ApiUnreachable(
                f"{self._path} is answered by something that is not a list: {error}"
            ) from None
        return page

    def _decoded_one_by_one(self, content: bytes) -> _Page[_T]:
        try:
            raw: _Page[msgspec.Raw] = self._each.decode(content)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ApiUnreachable(
                f"{self._path} is answered by something that is not a list: {error}"
            ) from None
        items: list[_T] = []
        for each in raw.items or ():
            try:
                items.append(self._one.decode(each))
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                self._on_malformed(bytes(each))
        return _Page(raw.metadata, items)
