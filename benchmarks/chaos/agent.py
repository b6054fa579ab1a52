"""``python -m benchmarks.chaos.agent FILE …``: the agent, whose wall clock is set by a file.

All of the agent takes the clock from `deviceplugin.runtime`. The file has by how much the clock is
off, in seconds, as a double.
"""

import mmap
import struct
import sys
from pathlib import Path

from deviceplugin import runtime
from deviceplugin.__main__ import main

OFFSET = struct.Struct("=d")


class SetClock(runtime.Runtime):
    """Python's own, with another wall clock."""

    def __init__(self, path: Path) -> None:
        """Maps the file."""
        with path.open("r+b") as file:
            self._off = mmap.mmap(file.fileno(), OFFSET.size)

    def epoch(self) -> float:
        """Returns the seconds since the epoch, as far as this node knows."""
        return super().epoch() + float(OFFSET.unpack_from(self._off)[0])


if __name__ == "__main__":
    with runtime.use(SetClock(Path(sys.argv.pop(1)))):
        main()
