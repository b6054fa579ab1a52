"""The most memory that each slice ever was, kept over restarts of the agent.

A container may hold what it took before its limit was lowered. The agent knows what the container
asked for; the file has the slices that a rule or `vgpuctl set` had raised above that. The agent
reads a missing or damaged file as an empty one. If it cannot write the file, it logs that and keeps
the old one.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from deviceplugin.log import event
from libvgpu.sizes import MAX_BYTES

from .disk import Disk
from .whole_file import replace_file

FILE = "slice-peaks.json"
#: Allocation id and GPU.
Slice = tuple[str, str]


class SlicePeaks:
    """Used by one thread.

    Attributes:
        most_bytes: of each slice, as far as it was noted.
    """

    def __init__(self, directory: Path) -> None:
        """Takes over what was saved in a directory."""
        self._path = directory / FILE
        self._saved = _load(self._path)
        self.most_bytes: Mapping[Slice, int] = self._saved

    def note(self, asked: Mapping[Slice, int], limits: Mapping[Slice, int]) -> None:
        """Takes what slices are now, and forgets all others.

        Args:
            asked: what they are without a rule.
            limits: what holds.
        """
        self.most_bytes = {
            each: max(self.most_bytes.get(each, 0), asked[each], limit)
            for each, limit in limits.items()
        }
        raised = {each: most for each, most in self.most_bytes.items() if most > asked[each]}
        if raised != self._saved:
            self._save(raised)

    def _save(self, raised: dict[Slice, int]) -> None:
        self._saved = raised  # one that cannot be written is said once
        rows = [[*each, most] for each, most in sorted(raised.items())]
        try:
            replace_file(self._path, json.dumps(rows).encode(), Disk())
        except OSError as error:
            event(logging.WARNING, "the largest slices cannot be saved", reason=error.strerror)


def _load(path: Path) -> dict[Slice, int]:
    try:
        rows = [(str(a), str(gpu), int(most)) for a, gpu, most in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, OverflowError, RecursionError):
        return {}
    return {(a, gpu): most for a, gpu, most in rows if 0 < most <= MAX_BYTES}
