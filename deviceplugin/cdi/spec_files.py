"""The node's CDI directory: specs that are there, and ours among them.

A runtime reads every ``.json`` and ``.yaml`` of its directories. Ours has the name that NVIDIA's
plugin gives the spec of a kind, ``<vendor>-<class>.json``: where this agent takes that plugin's
place, it takes over its file too, so that containers of before restart with the present driver.
Every other file is somebody else's and is never touched.

Ours is written into a file next to it, which no runtime reads, and renamed. It is not removed when
the agent ends: the kubelet replays an old answer when a container restarts, which needs the name it
was given; the directory is emptied by a reboot. Used by the agent's loop and, under the keeper's
lock, by the kubelet's calls.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from libvgpu.errors import ConfigError, VgpuError
from libvgpu.yamltext import parse

from .trees import Tree

#: Where a runtime looks besides; of two specs with one device that of the later directory counts.
STATIC_DIRECTORY = "/etc/cdi"


@dataclass(frozen=True, slots=True)
class SpecFile:
    """A spec of one kind that lies in one of the runtime's directories.

    Attributes:
        path: on the node.
        content: of its text; devices by name.
        common: edits for every one of its devices.
    """

    path: str
    devices: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)


def spec_name(kind: str) -> str:
    """Returns the name of our file of a kind."""
    return f"{kind.replace('/', '-')}.json"


class SpecDirectory:
    """The directories with specs, and which file there is ours."""

    def __init__(self, tree: Tree, directory: str, kind: str) -> None:
        """Reads nothing yet.

        Args:
            directory: of the node's tree, where ours is written.
        """
        self._tree, self._directory, self._kind = tree, directory, kind
        self.path = f"{directory.rstrip('/')}/{spec_name(kind)}"
        self._read: dict[str, tuple[tuple[int, int], SpecFile | None]] = {}

    def others(self) -> list[SpecFile]:
        """Returns somebody else's specs of this kind in the directory that ours is in.

        Those of other directories cannot be in conflict with ours: the one of the later directory
        counts, and that is ours where it is the default one.
        """
        return [each for each in self._specs([self._directory]) if each.path != self.path]

    def ours(self) -> SpecFile | None:
        """Returns ours, None where it is not there or cannot be read."""
        return self._spec(self._directory, spec_name(self._kind))

    def having(self, name: str) -> SpecFile | None:
        """Returns the spec that a runtime takes a device from, None where there is none."""
        directories = [self._directory, STATIC_DIRECTORY]
        return next((s for s in self._specs(directories) if name in s.devices), None)

    def write(self, content: Mapping[str, Any] | None) -> bool:
        """Puts ours in place, None removes it; returns whether that changed anything.

        Raises:
            VgpuError: it cannot be written.
        """
        directory = self._tree.at(self._directory)
        path = f"{directory}/{spec_name(self._kind)}"
        try:
            if content is None:
                if not os.path.lexists(path):
                    return False
                os.unlink(path)
                return True
            text = json.dumps(content, indent=2) + "\n"
            if _text(path) == text:
                return False
            os.makedirs(directory, mode=0o755, exist_ok=True)
            new = f"{path}.new"
            with open(new, "w", encoding="utf-8") as file:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except OSError as error:
            raise VgpuError(
                f"the CDI spec {self.path} cannot be written: {error.strerror}",
                hint="name another directory that the container runtime reads in "
                "flags.plugin.cdiSpecDir",
            ) from None
        return True

    def _specs(self, directories: Sequence[str]) -> list[SpecFile]:
        found = []
        for directory in dict.fromkeys(directories):
            for name in self._tree.names(directory):
                if name.endswith((".json", ".yaml")):
                    found.append(self._spec(directory, name))
        return [each for each in found if each is not None]

    def _spec(self, directory: str, name: str) -> SpecFile | None:
        """Returns one file's spec; parsed once for each of its versions, for YAML is slow."""
        path = f"{directory.rstrip('/')}/{name}"
        seen = self._tree.at(path)
        try:
            status = os.stat(seen)
        except OSError:
            self._read.pop(path, None)
            return None
        stamp = status.st_ino, status.st_mtime_ns
        known = self._read.get(path)
        if known is None or known[0] != stamp:
            known = self._read[path] = stamp, _parsed(path, _text(seen), self._kind)
        return known[1]


def _parsed(path: str, text: str | None, kind: str) -> SpecFile | None:
    """Returns a spec of this kind; None for others, and for what a runtime cannot read either."""
    try:
        content, _ = parse(text or "", path)
    except ConfigError:
        return None
    if not isinstance(content, dict) or content.get("kind") != kind:
        return None
    devices = content.get("devices")
    return SpecFile(
        path,
        {
            str(each.get("name")): each.get("containerEdits") or {}
            for each in (devices if isinstance(devices, list) else ())
            if isinstance(each, dict)
        },
        content.get("containerEdits") or {},
    )


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
