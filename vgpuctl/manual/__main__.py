"""``python -m vgpuctl.manual FILE``: writes the man page there."""

import sys
from importlib import metadata
from pathlib import Path

from ..cli import cli
from ..examples import PROGRAM
from .page import page


def main(path: Path) -> None:
    """Writes the page of this version."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(cli, PROGRAM, metadata.version("vgpu")), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
