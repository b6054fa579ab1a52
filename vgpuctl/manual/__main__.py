"""``python -m vgpuctl.manual DIRECTORY``: writes the man pages there."""

import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import click

from ..cli import cli
from ..cluster.cli import kubectl_cli
from ..examples import PLUGIN, PROGRAM
from .page import page

#: What is typed -> the group of all verbs.
PROGRAMS: Mapping[str, click.Group] = {PROGRAM: cli, PLUGIN: kubectl_cli}


def file_name(program: str) -> str:
    """Returns how the man page of a program is called."""
    return f"{program.replace(' ', '-')}.1"


def main(directory: Path) -> None:
    """Writes the pages of this version."""
    directory.mkdir(parents=True, exist_ok=True)
    for program, group in PROGRAMS.items():
        made = page(group, program, metadata.version("vgpu"))
        (directory / file_name(program)).write_text(made, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
