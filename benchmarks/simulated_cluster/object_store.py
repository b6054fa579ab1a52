"""What the simulated API server keeps: objects with versions, and the changes of the last while.

One version counts all changes, as in etcd. Objects are never changed in place: a change puts a new
one, with its JSON made once for all who read it. Changes are kept for each kind up to a number;
whoever asks for older ones is told that they have expired. One lock; subscribers are called under
it and must not block.
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from .kinds import KINDS, Kind
from .refusals import conflict, exists, expired, invalid, not_found

Content = dict[str, Any]
_UIDS = uuid.UUID("8f3c2f0a-5d0e-4f52-9a53-0c6f0f6c9e11")


class ChangeKind(StrEnum):
    """As a watch names it."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Stored:
    """One object at one version; ``content`` must not be changed.

    Attributes:
        raw: its JSON, without kind and apiVersion.
    """

    namespace: str
    name: str
    version: int
    content: Mapping[str, Any]
    raw: bytes

    def copy(self) -> Content:
        """Returns the content, to be changed."""
        found: Content = msgspec.json.decode(self.raw)
        return found


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one object; ``before`` is what it was, None of a new one."""

    kind: ChangeKind
    now: Stored
    before: Stored | None


Subscriber = Callable[[Change], None]


@dataclass(slots=True)
class _Table:
    objects: dict[tuple[str, str], Stored] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)
    forgotten: int = 0  # changes up to this version are not known any more
    subscribers: list[Subscriber] = field(default_factory=list)


class ObjectStore:
    """All objects of the cluster."""

    def __init__(self, kept_changes: int = 20_000, now_s: Callable[[], float] = time.time) -> None:
        """Is empty.

        Args:
            kept_changes: of each kind.
            now_s: seconds since the epoch.
        """
        self.lock = threading.RLock()
        self.version = 1
        self._kept_changes, self._now_s, self._made = kept_changes, now_s, 0
        self._tables: dict[Kind, _Table] = {kind: _Table() for kind in KINDS}

    def timestamp(self) -> str:
        """Returns the time as objects have it."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._now_s()))

    def create(self, kind: Kind, content: Content) -> Stored:
        """Adds an object, with a UID of its own unless it brings one.

        Raises:
            ApiFailure: one of its name is there.
        """
        metadata = content.setdefault("metadata", {})
        with self.lock:
            self._made += 1
            if not metadata.get("name") and metadata.get("generateName"):
                metadata["name"] = f"{metadata['generateName']}{self._made:06x}"
            if not metadata.get("name"):
                raise invalid("metadata.name: Required value: name or generateName is required")
            key = metadata.get("namespace", "") if kind.namespaced else "", metadata["name"]
            if key in self._tables[kind].objects:
                raise exists(_described(kind, key[1]))
            metadata.setdefault("uid", str(uuid.uuid5(_UIDS, str(self._made))))
            metadata["creationTimestamp"] = self.timestamp()
            return self._put(kind, key, content)

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Returns an object.

        Raises:
            ApiFailure: it is not there.
        """
        with self.lock:
            found = self._tables[kind].objects.get((namespace, name))
        if found is None:
            raise not_found(_described(kind, name))
        return found

    def list(self, kind: Kind) -> tuple[int, list[Stored]]:
        """Returns the version and all objects, in the order of namespace and name."""
        with self.lock:
            objects = self._tables[kind].objects
            return self.version, [objects[key] for key in sorted(objects)]

    def change(
        self, kind: Kind, namespace: str, name: str, edit: Callable[[Content], None]
    ) -> Stored:
        """Changes an object by ``edit``, which may raise `ApiFailure` to change nothing.

        Where the content that comes out has a resourceVersion, it must be the present one.

        Raises:
            ApiFailure: it is not there, or has changed since that version.
        """
        with self.lock:
            before = self.get(kind, namespace, name)
            content = before.copy()
            edit(content)
            metadata = content.setdefault("metadata", {})
            old = before.content["metadata"]
            if metadata.get("resourceVersion", str(before.version)) != str(before.version):
                raise conflict(
                    f"Operation cannot be fulfilled on {_described(kind, name)}: the object has "
                    "been modified; please apply your changes to the latest version and try again"
                )
            if metadata.get("uid", old["uid"]) != old["uid"]:
                raise conflict(f"Precondition failed: UID in precondition: {metadata['uid']}")
            if content == before.content:
                return before
            for key in ("name", "namespace", "uid", "creationTimestamp"):
                if key in old:
                    metadata[key] = old[key]
            return self._put(kind, (namespace, name), content)

    def delete(self, kind: Kind, namespace: str, name: str, uid: str = "") -> Stored:
        """Removes an object.

        Raises:
            ApiFailure: it is not there, or another one of its name is.
        """
        with self.lock:
            before = self.get(kind, namespace, name)
            if uid and before.content["metadata"]["uid"] != uid:
                raise conflict(f"Precondition failed: UID in precondition: {uid}")
            self.version += 1
            content = before.copy()
            content["metadata"]["resourceVersion"] = str(self.version)
            raw = msgspec.json.encode(content)
            del self._tables[kind].objects[namespace, name]
            gone = Stored(namespace, name, self.version, content, raw)
            self._tell(kind, Change(ChangeKind.DELETED, gone, before))
            return gone

    def subscribe(self, kind: Kind, since: int, subscriber: Subscriber) -> None:
        """Tells all changes after a version, and those to come.

        Raises:
            ApiFailure: they have expired.
        """
        with self.lock:
            table = self._tables[kind]
            if since < table.forgotten:
                raise expired(f"too old resource version: {since} ({table.forgotten})")
            for change in table.changes:
                if change.now.version > since:
                    subscriber(change)
            table.subscribers.append(subscriber)

    def unsubscribe(self, kind: Kind, subscriber: Subscriber) -> None:
        """Tells no more; harmless where it is done."""
        with self.lock:
            subscribers = self._tables[kind].subscribers
            if subscriber in subscribers:
                subscribers.remove(subscriber)

    def forget_changes(self) -> None:
        """Forgets all changes: whoever was not listening must list again."""
        with self.lock:
            self.version += 1
            for table in self._tables.values():
                table.changes.clear()
                table.forgotten = self.version

    def _put(self, kind: Kind, key: tuple[str, str], content: Content) -> Stored:
        self.version += 1
        content["metadata"]["resourceVersion"] = str(self.version)
        for unwanted in ("kind", "apiVersion"):
            content.pop(unwanted, None)
        raw = msgspec.json.encode(content)
        # Decoded again: nothing of the caller's stays within.
        stored = Stored(*key, self.version, msgspec.json.decode(raw), raw)
        table = self._tables[kind]
        before = table.objects.get(key)
        table.objects[key] = stored
        how = ChangeKind.ADDED if before is None else ChangeKind.MODIFIED
        self._tell(kind, Change(how, stored, before))
        return stored

    def _tell(self, kind: Kind, change: Change) -> None:
        table = self._tables[kind]
        table.changes.append(change)
        if len(table.changes) > self._kept_changes:
            table.forgotten = table.changes.popleft().now.version
        for subscriber in tuple(table.subscribers):
            subscriber(change)


def _described(kind: Kind, name: str) -> str:
    return f'{kind.plural}{"." + kind.group if kind.group else ""} "{name}"'
