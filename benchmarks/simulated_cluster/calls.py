"""The simulated API server's answers: method, path and body in, status and object out; no HTTP.

Merge patches, strategic ones and server-side applies are all merged as RFC 7386 has it: of the
objects that are kept here nothing is a list that would be merged item by item.
"""

import base64
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from . import pod_calls
from .kinds import KINDS, POD, Kind
from .object_store import Content, ObjectStore, Stored
from .refusals import ApiFailure, bad_request, conflict, expired, invalid
from .selectors import field_selector, label_selector
from .watches import Query, Watch, with_kind

_TRUE = ("1", "true", "True")
_MERGES = ("merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml", "json")
_SUBRESOURCES = ("", "status", "binding")
#: So many lists may be read page by page at once.
_OPEN_LISTS = 64
Parameters = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """What a path leads to."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body; instead of a body a watch to be followed."""

    status: int
    body: bytes = b""
    watch: Watch | None = None


def merge_patch(into: Content, patch: Content) -> None:
    """Merges a JSON merge patch, as RFC 7386 has it."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            merge_patch(into[key], value)
        else:
            into[key] = value


def place_of(path: str) -> Place | None:
    """Returns what a path leads to, None where it leads nowhere."""
    for kind in KINDS:
        if not path.startswith(kind.root + "/"):
            continue
        words = path[len(kind.root) + 1 :].split("/")
        namespace = ""
        if kind.namespaced and words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        if words[0] == kind.plural and len(words) <= 3:
            name, part = (*words[1:], "", "")[:2]
            if part in _SUBRESOURCES and not (kind.namespaced and name and not namespace):
                return Place(kind, namespace, name, part)
    return None


class Calls:
    """Answers calls for what a store has."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._pages: OrderedDict[str, tuple[int, Sequence[Stored]]] = OrderedDict()
        self._lock = threading.Lock()
        self._made_pages = 0

    def forget_pages(self) -> None:
        """Lets the lists that are being read page by page expire."""
        with self._lock:
            self._pages.clear()

    def answer(self, method: str, target: str, kind_of_body: str, body: bytes) -> Answer:
        """Answers one call.

        Args:
            target: path and query.

        Raises:
            ApiFailure: it is refused.
        """
        path, _, query = target.partition("?")
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        place = place_of(path)
        if place is None:
            raise ApiFailure(404, "NotFound", "the server could not find the requested resource")
        try:
            content = msgspec.json.decode(body) if body else None
        except msgspec.MsgspecError as error:
            raise bad_request(f"couldn't parse the body: {error}") from None
        if method == "GET":
            if place.name:
                found = self.store.get(place.kind, place.namespace, place.name)
                return Answer(200, with_kind(place.kind, found.raw))
            return self._collection(place, parameters)
        if method == "DELETE" and place.name:
            return self._delete(place, parameters, content or {})
        if not isinstance(content, dict):
            raise bad_request("this call needs an object as its body")
        if method == "POST":
            return self._post(place, content)
        if method in ("PUT", "PATCH") and place.name:
            if method == "PATCH" and not kind_of_body.partition(";")[0].endswith(_MERGES):
                raise ApiFailure(415, "UnsupportedMediaType", f"no patch is {kind_of_body!r}")
            is_apply = "apply-patch" in kind_of_body
            return self._change(place, content, method == "PUT", is_apply)
        raise ApiFailure(405, "MethodNotAllowed", "the server does not allow this method")

    # ---- reading -----------------------------------------------------------------------------

    def _collection(self, place: Place, parameters: Parameters) -> Answer:
        labels = label_selector(parameters.get("labelSelector", ""))
        fields = field_selector(place.kind, parameters.get("fieldSelector", ""))
        query = Query(
            place.kind, place.namespace, lambda each: labels(each.content) and fields(each.content)
        )
        if parameters.get("watch") in _TRUE:
            version = parameters.get("resourceVersion", "")
            since = _number("resourceVersion", version) or None if version else None
            return Answer(200, watch=Watch(self.store, query, since))
        return Answer(200, self._page(query, parameters))

    def _page(self, query: Query, parameters: Parameters) -> bytes:
        limit = _number("limit", parameters.get("limit", "0"))
        token = parameters.get("continue", "")
        if token:
            with self._lock:
                found = self._pages.pop(token, None)
            if found is None:
                raise expired("The provided continue parameter is too old")
            version, objects = found
        else:
            version, everything = self.store.list(query.kind)
            objects = [each for each in everything if query.matches(each)]
        metadata: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(objects) > limit:
            objects, rest = objects[:limit], objects[limit:]
            metadata |= {"continue": self._keep(version, rest), "remainingItemCount": len(rest)}
        head = msgspec.json.encode(
            {
                "kind": f"{query.kind.name}List",
                "apiVersion": query.kind.api_version,
                "metadata": metadata,
            }
        )
        return head[:-1] + b',"items":[' + b",".join(each.raw for each in objects) + b"]}"

    def _keep(self, version: int, rest: Sequence[Stored]) -> str:
        with self._lock:
            self._made_pages += 1
            token = base64.urlsafe_b64encode(f"{version} {self._made_pages}".encode()).decode()
            self._pages[token] = version, rest
            if len(self._pages) > _OPEN_LISTS:
                self._pages.popitem(last=False)
        return token

    # ---- changing ----------------------------------------------------------------------------

    def _post(self, place: Place, content: Content) -> Answer:
        if place.kind is POD and place.part == "binding":
            pod_calls.bind(self.store, place.namespace, place.name, content)
            return Answer(201, b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}')
        if place.name:
            raise ApiFailure(405, "MethodNotAllowed", "the server does not allow this method")
        if place.kind is POD:
            pod_calls.prepare(content)
        return self._created(place, content)

    def _created(self, place: Place, content: Content) -> Answer:
        metadata = content.setdefault("metadata", {})
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        said = content.get("apiVersion", place.kind.api_version), content.get("kind")
        if said not in ((place.kind.api_version, None), (place.kind.api_version, place.kind.name)):
            raise bad_request(f"the object in the data is a {said[1]} of {said[0]}")
        metadata.pop("uid", None)
        namespace = place.namespace
        if place.kind.namespaced and metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the object does not match that of the request")
        if place.name and metadata.setdefault("name", place.name) != place.name:
            raise bad_request("the name of the object does not match the name on the URL")
        return Answer(201, with_kind(place.kind, self.store.create(place.kind, content).raw))

    def _change(self, place: Place, body: Content, is_whole: bool, is_apply: bool) -> Answer:
        metadata = body.get("metadata") or {}
        if metadata.get("name", place.name) != place.name:
            raise bad_request("the name of the object does not match the name on the URL")

        def edit(content: Content) -> None:
            if place.part == "status":
                merge_patch(content.setdefault("status", {}), body.get("status") or {})
            elif not is_whole:
                merge_patch(content, body)
            else:
                if place.kind.needs_version and not metadata.get("resourceVersion"):
                    raise invalid("metadata.resourceVersion: must be specified for an update")
                content.clear()
                content.update(body)
            content.pop("kind", None), content.pop("apiVersion", None)

        with self.store.lock:
            try:
                changed = self.store.change(place.kind, place.namespace, place.name, edit)
            except ApiFailure as failure:
                # As for Leases: an update of what is not there makes it, unless it had a version.
                may_create = is_apply or (is_whole and place.kind.needs_version)
                if failure.status != 404 or not may_create or place.part:
                    raise
                if metadata.get("resourceVersion"):
                    raise conflict("StorageError: invalid object, code 4") from None
                return self._created(place, body)
        return Answer(200, with_kind(place.kind, changed.raw))

    def _delete(self, place: Place, parameters: Parameters, options: Content) -> Answer:
        uid = (options.get("preconditions") or {}).get("uid") or ""
        if place.kind is POD:
            grace = options.get("gracePeriodSeconds", parameters.get("gracePeriodSeconds"))
            gone = pod_calls.delete(
                self.store,
                place.namespace,
                place.name,
                None if grace is None else _number("gracePeriodSeconds", str(grace)),
                uid,
            )
        else:
            gone = self.store.delete(place.kind, place.namespace, place.name, uid)
        return Answer(200, with_kind(place.kind, gone.raw))


def _number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise bad_request(f"{name}: Invalid value: {text!r}")
    return int(text)
