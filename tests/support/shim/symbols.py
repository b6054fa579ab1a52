"""What a shared library exports."""

from pathlib import Path

from support.ended import printed


def exports(library: Path) -> set[str]:
    """Returns the names of what a library defines for others."""
    listing = printed("nm", "-D", "--defined-only", "--format=posix", str(library))
    return {line.split()[0] for line in listing.splitlines()}
