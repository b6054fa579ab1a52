"""Tells what is taken of a GPU by NVML's own figure, which the shim does not show.

``python -m support.exercise.nvml_used UUID`` runs without the shim. It answers each line with the
bytes, and ends with its input. The program that asks runs under the shim. Nothing else may use the
GPU.
"""

import os
import sys

import pynvml

from support.lines import next_line, start_listening, tell


class UsedBytes:
    """The process that answers."""

    def __init__(self, uuid: str) -> None:
        bare = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._process = start_listening(
            [sys.executable, "-m", "support.exercise.nvml_used", uuid], bare, stderr=None
        )

    def __call__(self) -> int:
        tell(self._process)
        return int(next_line(self._process))


def main(uuid: str) -> None:
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    for _ in sys.stdin:
        print(pynvml.nvmlDeviceGetMemoryInfo(gpu).used, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
