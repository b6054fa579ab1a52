"""The config that was last accepted, kept on disk for an agent that restarts next to a bad one.

One JSON file in the state directory with the text, where it came from, and a hash over all of it,
so that damage is told from a config; and which GPU had which index then. Written by the agent
alone, which holds the lock of its state directory; the MPS runner reads it too. A file that cannot
be written is said once and tried again by `look`, which the agent's loop calls; what is in force
does not depend on it.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from deviceplugin.log import event
from deviceplugin.model.agent_config import ConfigText
from deviceplugin.policy.devices.gpu_numbers import NO_RECORD, GpuRecord, RecordedGpu
from libvgpu.errors import ConfigError

from .disk import Disk
from .whole_file import replace_file

FILE = "accepted-config.json"
FORM = 1
#: A ConfigMap has at most 1 MiB; JSON may need six bytes for one.
MOST_BYTES = 8 << 20


class KeptConfig:
    """The file ``accepted-config.json`` in the state directory; changed by one thread.

    Attributes:
        record: which GPU had which index, as `load` found it or `keep` was told.
    """

    def __init__(self, state_dir: Path, disk: Disk | None = None) -> None:
        self.path = state_dir / FILE
        self._disk = disk or Disk()
        self.record = NO_RECORD
        self._saved: tuple[ConfigText, GpuRecord] | None = None
        self._accepted: tuple[ConfigText, GpuRecord] | None = None
        self._said = ""

    def load(self) -> ConfigText | None:
        """Returns what was kept, None where nothing is.

        Raises:
            ConfigError: the file is there and cannot be read, or is damaged.
        """
        try:
            raw = self._disk.read(self.path, MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        try:
            text, self.record = _decode(raw)
        except KeyError as error:
            raise ConfigError(f"{self.path} is damaged: it lacks {error}") from None
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise ConfigError(f"{self.path} is damaged: {error}") from None
        self._saved = text, self.record
        return text

    def found(self) -> ConfigText | ConfigError | None:
        """Returns what `load` does, or its error, which is said."""
        try:
            return self.load()
        except ConfigError as error:
            event(logging.ERROR, "the kept config cannot be used", reason=error.message)
            return error

    def keep(self, accepted: ConfigText, record: GpuRecord = NO_RECORD) -> None:
        """Keeps what is in force now, and which GPU has which index; does not raise."""
        self._accepted, self.record = (accepted, record), record
        self.look()

    def look(self) -> None:
        """Writes what is to be kept, where that is not on disk yet."""
        if self._accepted is None or self._accepted == self._saved:
            return
        try:
            replace_file(self.path, _encode(*self._accepted), self._disk)
        except OSError as error:
            reason = f"{self.path} cannot be written: {error.strerror}"
            if reason != self._said:
                event(
                    logging.ERROR,
                    "the accepted config is not saved, so a restart with a bad one would go back "
                    "to the config before it",
                    reason=reason,
                )
            self._said = reason
            return
        self._saved, self._said = self._accepted, ""


def _values(text: ConfigText) -> dict[str, str]:
    return {
        "place": text.place,
        "name": text.name,
        "chosen_by": text.chosen_by,
        "text": text.text,
    }


def _hash(values: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _encode(text: ConfigText, record: GpuRecord) -> bytes:
    values = _values(text)
    content = {"form": FORM, **values, "sha256": _hash(values)}
    if record.gpus:
        gpus = [[each.index, each.uuid, each.product] for each in record.gpus]
        content["indexes"] = {"named": sorted(record.named), "gpus": gpus}
    return json.dumps(content, indent=1).encode() + b"\n"


def _record(found: Any) -> GpuRecord:
    """Returns which GPU had which index; nothing where an earlier version wrote the file."""
    if found is None:
        return NO_RECORD
    gpus = tuple(
        RecordedGpu(int(index), str(uuid), str(product)) for index, uuid, product in found["gpus"]
    )
    return GpuRecord(frozenset(map(str, found["named"])), gpus)


def _decode(raw: bytes) -> tuple[ConfigText, GpuRecord]:
    if len(raw) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    if found["form"] != FORM:
        raise ValueError(f"its form is {found['form']!r}, this version reads form {FORM}")
    values = {key: str(found[key]) for key in ("place", "text", "name", "chosen_by")}
    text = ConfigText(**values, was_in_force=True)
    if found["sha256"] != _hash(_values(text)):
        raise ValueError("its hash does not match its content")
    return text, _record(found.get("indexes"))
