"""Where the MPS daemon of a GPU is met: a file of its own, since `vgpuctl run` needs no more."""

from pathlib import Path


def pipe_directory(run_dir: Path, uuid: str) -> Path:
    """Returns the host's path of the pipe directory of a GPU's MPS daemon."""
    return run_dir / "mps" / uuid / "pipe"
