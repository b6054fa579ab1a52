"""Has clang-tidy judge our C files: ``python -m support.tidy [FILES...]`` (`make tidy`).

Which checks, and why some not: ``.clang-tidy``.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from libvgpu._sources import COMPILE_ARGS, INCLUDES, sources
from support import ROOT

_JUDGED = tuple(f"libvgpu/{room}/**/*.c" for room in ("src", "arbiter", "placement", "sim"))
_TIDY = Path(sys.executable).with_name("clang-tidy")


def _judge(source: str) -> str:
    """Returns what is said of a file; nothing if it is clean."""
    flags = [*COMPILE_ARGS, *(f"-I{each}" for each in INCLUDES)]
    command = [str(_TIDY), "--quiet", "--warnings-as-errors=*", source, "--", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def main(chosen: list[str]) -> int:
    """Prints what is said of the files; returns 1 if anything is."""
    judged = chosen or sources(*_JUDGED)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [answer for answer in pool.map(_judge, judged) if answer]
    print("\n".join([*said, f"clang-tidy: {len(judged)} files, {len(said)} with findings"]))
    return int(bool(said))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
