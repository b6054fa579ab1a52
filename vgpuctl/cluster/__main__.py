"""The entry point of ``kubectl-vgpu``, which `kubectl vgpu` runs."""

import sys

from ..__main__ import main as run_command_line
from .cli import kubectl_cli


def main() -> int:
    """Runs the command line of this process; returns its exit status."""
    return run_command_line(program="kubectl vgpu", group=kubectl_cli)


if __name__ == "__main__":
    sys.exit(main())
