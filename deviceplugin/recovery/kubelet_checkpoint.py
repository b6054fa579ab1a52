"""The kubelet's own checkpoint, read as a second record of who has what.

``<kubelet-dir>/device-plugins/kubelet_internal_checkpoint`` has one entry for each resource of each
container, with its units and the plugin's answer. The kubelet writes it again (another file,
renamed) when a container has all its devices and whenever a plugin sends a list. So:

* plain init containers are in it, which podresources leaves out;
* a container whose admission is under way may be missing, or be there with one half;
* a pod that has ended stays in it until the next write.

It is written by the kubelet's version, not ours: what is there is read leniently (fields that are
not known are left out; before 1.20 the units were a plain list), and what cannot be read
is an empty reading with a sentence that says why, never an error. Its checksum is over Go's own
printing of the data and cannot be recomputed here.

`KubeletCheckpoint.read` is cheap to ask often: it reads the file only when it has changed. A file
that was written a moment ago may change again without showing it (times are coarse, inode numbers
are used again), so a file is read again until it has looked the same for `SETTLED_AFTER_S`. Any
thread may ask: what is kept is replaced as a whole.
"""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from deviceplugin import runtime
from libvgpu.decoding import json_decoder

NAME = "kubelet_internal_checkpoint"
#: Twice all units of a node and an answer for each container take less than half of this.
MOST_BYTES = 32 << 20
#: A file that has looked the same for less than this is read again the next time.
SETTLED_AFTER_S = 0.1

Identity = tuple[int, int, int]  # time of change, size, inode


@dataclass(frozen=True, slots=True)
class KubeletEntry:
    """What the kubelet has on record for one resource of one container.

    Attributes:
        units: device ids, sorted.
        mounts: host path behind each path in the container.
    """

    pod_uid: str
    container: str
    resource: str
    units: tuple[str, ...]
    mounts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CheckpointReading:
    """What the file says.

    Attributes:
        entries: those of our resources.
        problem: why it cannot be gone by, as a sentence; None where it can.
        pods: uids of the pods that have a directory with the kubelet, which it makes after their
            admission and removes after their end; None where it keeps none.
    """

    entries: tuple[KubeletEntry, ...]
    problem: str | None = None
    pods: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was read last, and since when the file has looked like that."""

    identity: Identity
    since_s: float
    is_settled: bool
    reading: CheckpointReading


class _Entry(msgspec.Struct):
    pod_uid: str = msgspec.field(name="PodUID", default="")
    container: str = msgspec.field(name="ContainerName", default="")
    resource: str = msgspec.field(name="ResourceName", default="")
    units: dict[str, list[str]] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)
    answer: bytes | None = msgspec.field(name="AllocResp", default=None)


class _Data(msgspec.Struct):
    entries: list[_Entry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _File(msgspec.Struct):
    data: _Data = msgspec.field(name="Data")


class _Registered(msgspec.Struct):
    devices: dict[str, list[str]] | None = msgspec.field(name="RegisteredDevices", default=None)


class _RegisteredFile(msgspec.Struct):
    data: _Registered = msgspec.field(name="Data")


_CHECKPOINT, _REGISTERED = json_decoder(_File), json_decoder(_RegisteredFile)


def registered_devices(path: Path) -> dict[str, list[str]]:
    """Returns the devices of each resource, of all plugins, as the file had them when written.

    Args:
        path: of the checkpoint.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no checkpoint.
    """
    raw, _ = _read(path)
    try:
        return _REGISTERED.decode(raw).data.devices or {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not a kubelet checkpoint: {error}") from error


class KubeletCheckpoint:
    """The kubelet's checkpoint of devices."""

    def __init__(
        self,
        kubelet_dir: Path,
        domain: str,
        mounts_of: Callable[[bytes], Mapping[str, str]],
        clock: Callable[[], float] = runtime.monotonic,
    ) -> None:
        """Reads nothing yet.

        Args:
            kubelet_dir: the kubelet's root, /var/lib/kubelet on most nodes.
            domain: of our resources; entries of others are left out.
            mounts_of: reads the mounts out of a serialised answer (`kubelet.answer_codec`).
            clock: seconds, monotonic: how old a file is by its own time is not gone by, since that
                is of a clock that may be set.
        """
        self.path = kubelet_dir / "device-plugins" / NAME
        self._pods = kubelet_dir / "pods"
        self._prefix = domain + "/"
        self._mounts_of = mounts_of
        self._clock = clock
        self._kept: _Kept | None = None

    def read(self) -> CheckpointReading:
        """Returns what the file says now, and which pods there are."""
        try:
            pods = frozenset(os.listdir(self._pods))
        except OSError:
            pods = None
        said = self._read()
        return said if pods is None else replace(said, pods=pods)

    def _read(self) -> CheckpointReading:
        kept = self._kept
        try:
            identity = _identity(os.stat(self.path))
            if kept is not None and kept.is_settled and kept.identity == identity:
                return kept.reading
            raw, identity = _read(self.path)
            reading = CheckpointReading(self._entries(raw))
        except OSError as error:
            return CheckpointReading((), f"{self.path} cannot be read: {error.strerror or error}")
        except (ValueError, RecursionError) as error:
            reading = CheckpointReading((), f"{self.path} is not a kubelet checkpoint: {error}")
        now_s = self._clock()
        since_s = kept.since_s if kept is not None and kept.identity == identity else now_s
        self._kept = _Kept(identity, since_s, now_s - since_s > SETTLED_AFTER_S, reading)
        return reading

    def _entries(self, raw: bytes) -> tuple[KubeletEntry, ...]:
        entries = _CHECKPOINT.decode(raw).data.entries or []
        return tuple(
            KubeletEntry(
                e.pod_uid, e.container, e.resource, _units(e), self._mounts_of(e.answer or b"")
            )
            for e in entries
            if e.resource.startswith(self._prefix)
        )


def _units(entry: _Entry) -> tuple[str, ...]:
    if isinstance(entry.units, dict):  # a device of several NUMA nodes stands under each of them
        return tuple(sorted({unit for units in entry.units.values() for unit in units}))
    return tuple(sorted(set(entry.units or ())))


def _identity(status: os.stat_result) -> Identity:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> tuple[bytes, Identity]:
    """Returns the file's bytes and which file they are of; never waits for a FIFO."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a plain file")
        if status.st_size > MOST_BYTES:
            raise ValueError(f"it has more than the {MOST_BYTES} bytes that are read")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size), _identity(status)
    finally:
        os.close(descriptor)
