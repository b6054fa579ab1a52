"""What a shared library exports."""

import subprocess
from pathlib import Path

from support.waiting import PATIENCE_S


def exports(library: Path) -> set[str]:
    """Returns the names of what a library defines for others."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout
    return {line.split()[0] for line in listing.splitlines()}
