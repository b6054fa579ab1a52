"""What a program executed, counted by callgrind: all instructions, and the locked ones among them.

A locked instruction takes 5 ns on one machine and 40 on another, so it is counted besides.
callgrind writes how often each instruction ran, by object and address, and objdump says which they
are: those with a ``lock`` prefix, and ``xchg`` with memory, which locks without one (Intel SDM,
volume 3, 9.1.2).
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from libvgpu.errors import VgpuError

#: Options under which a report has every instruction.
OPTIONS = ("--tool=callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no")

_LOCKED = re.compile(r"^ *([0-9a-f]+):\t(?:lock\b|xchg\b.*\()", re.M)
_OBJDUMP_TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Executed:
    """How many instructions ran.

    Attributes:
        locked: those of them that lock the bus or a cache line.
    """

    instructions: int
    locked: int


def executed(report: Path) -> Executed:
    """Reads a report that callgrind wrote under `OPTIONS`.

    Raises:
        VgpuError: it has no instruction, or objdump cannot read an object.
    """
    instructions = locked = 0
    for path, address, count in _counts(report.read_text()):
        instructions += count
        if address in _locked_addresses(path):
            locked += count
    if instructions == 0:
        raise VgpuError(f"callgrind wrote no instruction into {report}")
    return Executed(instructions, locked)


def _counts(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields object, address and count of each line; what a call took besides is left out."""
    path, is_of_call = "", False
    for line in text.splitlines():
        if line.startswith("ob="):
            path = line[3:]
        elif line.startswith("calls="):
            is_of_call = True
        elif line.startswith("0x"):
            if not is_of_call:
                address, _, count = line.split()
                yield path, int(address, 16), int(count)
            is_of_call = False


@cache
def _locked_addresses(path: str) -> frozenset[int]:
    if not Path(path).is_file():  # what the kernel maps, and code that callgrind cannot name
        return frozenset()
    command = ["objdump", "--disassemble", "--no-show-raw-insn", path]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_OBJDUMP_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise VgpuError(f"objdump cannot read {path}: {error}") from error
    return frozenset(int(found, 16) for found in _LOCKED.findall(result.stdout))
