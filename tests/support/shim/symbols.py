"""What a shared library exports."""

from pathlib import Path

from support.ended import run_to_end


def exports(library: Path) -> set[str]:
    """Returns the names of what a library defines for others."""
    listing = run_to_end(
        ["nm", "-D", "--defined-only", "--format=posix", str(library)], check=True
    ).stdout
    return {line.split()[0] for line in listing.splitlines()}
