"""Objects of the API server, followed by list and watch in a thread of their own.

First all objects are listed, then a watch tells what becomes of them, from the list's resource
version on. A watch that ends, as each does after some minutes, goes on from the version that was
told last. Where that version is too old (410), and after any other refusal, the objects are listed
again: `on_list` gets all there are, so what is missing from it is gone. While the server is away
nothing is called and whoever follows keeps what was told last; `is_current` says so.

The callbacks run in that thread, never two at a time, in the order of what happened. Nothing is
kept here but the version.
"""

import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Generic, TypeVar

import httpx2
import msgspec

from deviceplugin import runtime
from deviceplugin.heartbeats import HELPER_LATE_S, Beat
from deviceplugin.log import event
from libvgpu.decoding import json_decoder

from .api_client import ApiRefused, ApiServer, ApiUnreachable
from .object_pages import ObjectList
from .raw_calls import stream
from .watch_stream import EventType, WatchEvent, any_object, lines

__all__ = ["EventType", "Follower"]

#: How long the server may end a watch after; each takes its own, so that not all end together.
WATCH_S = (240, 480)
_READ_MORE_S = 15.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
#: A watch that lived this long was none of a row of failures.
_LONG_LIVED_S = 5.0
#: How long ago a watch may have been alive for what it told to count as the present.
CURRENT_S = 5.0
#: Failures in a row after which the objects are listed again.
_MOST_FAILURES = 5
_MOST_TOLD = 1000
#: A watch that tells nothing ends within this.
_LATE_S = WATCH_S[1] + _READ_MORE_S + HELPER_LATE_S

_T = TypeVar("_T")


class Follower(Generic[_T]):
    """Follows the objects of one path.

    Attributes:
        problem: why the objects are not followed at this moment; empty while they are.
        malformed: how many objects were passed over, since they could not be decoded.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        params: Mapping[str, str],
        kind: type[_T],
        on_list: Callable[[list[_T]], None],
        on_event: Callable[[EventType, _T], None],
        name: str,
        trim: Callable[[_T], _T | None] | None = None,
    ) -> None:
        """Begins with `start`.

        Args:
            path: as ``/api/v1/pods``.
            params: selectors, as ``{"fieldSelector": "spec.nodeName=n1"}``.
            kind: a msgspec struct of the fields that matter.
            on_list: gets all objects.
            on_event: gets one object that changed, whether it was listed or not.
            name: of the thread, also in messages.
            trim: gives what is to be kept of a listed object until the list is whole; None leaves
                it out. Objects of events come as they are.
        """
        self._api, self._path, self._params, self._name = api, path, dict(params), name
        self._on_list, self._on_event = on_list, on_event
        self._pages = ObjectList(api, path, params, kind, trim, self._pass_over)
        self._event_decoder = json_decoder(WatchEvent)
        self._decoder = json_decoder(kind)
        self._version = ""
        self._pause_s, self._failures = FIRST_PAUSE_S, 0
        self._told: set[str] = set()
        self._synced, self._stopping = runtime.event(), runtime.event()
        self._hurried = runtime.event()
        self._alive_at_s = 0.0
        self._response: httpx2.Response | None = None
        self.beat = Beat(_LATE_S)
        self._thread = runtime.thread(target=self._run, name=name)
        self.problem = ""
        self.malformed = 0

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; at most the callback that runs just now still comes to its end."""
        self._stopping.set()
        self._hurried.set()
        response = self._response
        stream_ = response.extensions.get("network_stream") if response is not None else None
        connection = stream_.get_extra_info("socket") if stream_ is not None else None
        if connection is not None:
            # Past TLS's own shutdown, which another thread's read does not allow: this wakes it.
            with contextlib.suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)

    def hurry(self) -> None:
        """Ends the pause after a failure, this one or the next: somebody needs to know now."""
        self._hurried.set()

    def wait_synced(self, timeout_s: float) -> bool:
        """Waits until the objects were listed once; returns whether they were."""
        return self._synced.wait(timeout_s)

    @property
    def is_current(self) -> bool:
        """A watch is alive, or was so within `CURRENT_S`."""
        if not self._synced.is_set():
            return False
        return self._response is not None or runtime.monotonic() - self._alive_at_s < CURRENT_S

    def _run(self) -> None:
        while not self._stopping.is_set():
            began_s = runtime.monotonic()
            self.beat()
            try:
                if not self._version:
                    self._list()
                self._watch()
                problem = ""
            except ApiRefused as error:
                problem = f"the API server answers {error.status}: {error.message}"
                self._version = ""
                if error.status == HTTPStatus.GONE:
                    event(logging.INFO, "objects are listed again", of=self._name, reason=problem)
                    problem = ""
            except ApiUnreachable as error:
                problem = error.message
                self._failures += 1
                if self._failures >= _MOST_FAILURES:
                    # Perhaps it is the version: one from before the server's data was put back.
                    self._version = ""
            except Exception as error:  # of a callback: what it missed, a list brings
                problem = f"{type(error).__name__}: {error}"
                self._version = ""
            if self._stopping.is_set():
                return
            lasted_s = runtime.monotonic() - began_s
            if lasted_s >= _LONG_LIVED_S:
                self._well()
            if problem or lasted_s < FIRST_PAUSE_S:
                self._say(problem)
                self._pause()

    def _list(self) -> None:
        objects, version = self._pages.read()
        if self._stopping.is_set():
            return
        self._on_list(objects)
        self._version = version
        self._alive_at_s = runtime.monotonic()
        self._synced.set()

    def _watch(self) -> None:
        """Follows one watch to its end."""
        duration_s = round(runtime.uniform(*WATCH_S))
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(duration_s),
        }
        with stream(
            self._api, "GET", self._path, params, read_timeout_s=duration_s + _READ_MORE_S
        ) as response:
            self._response = response
            try:
                if self._stopping.is_set():
                    return
                self._say("")
                for line in lines(response.iter_bytes()):
                    self.beat()
                    if self._stopping.is_set():
                        return
                    self._take(line)
            finally:
                self._response = None
                self._alive_at_s = runtime.monotonic()

    def _take(self, line: bytes) -> None:
        try:
            found = self._event_decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            # Whatever it told is lost, so only a list can be right.
            self._version = ""
            raise ApiUnreachable(f"a watch sends something that is not an event: {error}") from None
        told = any_object(found.object)
        if found.type == "ERROR":
            raise ApiRefused(told.code or HTTPStatus.INTERNAL_SERVER_ERROR, told.message)
        if found.type in EventType.__members__:
            try:
                decoded = self._decoder.decode(found.object)
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                self._pass_over(bytes(found.object))
            else:
                try:
                    self._on_event(EventType(found.type), decoded)
                except Exception:
                    self._version = ""
                    raise
            self._well()
        if told.metadata.resource_version:
            self._version = told.metadata.resource_version

    def _pass_over(self, content: bytes) -> None:
        self.malformed += 1
        metadata = any_object(content).metadata
        key = metadata.uid or f"{metadata.namespace}/{metadata.name}"
        if key not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(key)
            event(
                logging.WARNING,
                "a malformed object of the API server is ignored",
                of=self._name,
                object=f"{metadata.namespace}/{metadata.name}",
                uid=metadata.uid or "none",
            )

    def _say(self, problem: str) -> None:
        if problem and not self.problem:
            event(
                logging.WARNING,
                "objects of the API server are not followed, the last known ones stay",
                of=self._name,
                reason=problem,
            )
        elif self.problem and not problem:
            event(logging.INFO, "objects of the API server are followed again", of=self._name)
        self.problem = problem

    def _well(self) -> None:
        self._pause_s, self._failures = FIRST_PAUSE_S, 0

    def _pause(self) -> None:
        self._hurried.wait(self._pause_s * runtime.uniform(0.5, 1.0))
        self._hurried.clear()
        self._pause_s = min(LONGEST_PAUSE_S, self._pause_s * 2)
