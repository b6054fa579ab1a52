"""Options that several verbs share, so that they read and behave the same everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from libvgpu import allocation_dirs
from libvgpu.limits import COMPUTE_WORDS, ComputeMode

_Command = TypeVar("_Command", bound=Callable[..., Any])

# Whether it may be read is said by the verb, which knows what it is for.
_DIRECTORY = click.Path(path_type=Path, file_okay=False, readable=False)
DEFAULT_STATE_DIR = Path("/var/lib/vgpu")
DEFAULT_KUBELET_DIR = Path("/var/lib/kubelet")


def run_dir_option(command: _Command) -> _Command:
    """Adds ``--run-dir``, the directory of the slices, as ``run_dir: Path | None``."""
    return click.option(
        "--run-dir",
        type=_DIRECTORY,
        envvar="VGPU_RUN_DIR",
        help="Where the slices are kept; also VGPU_RUN_DIR. [default: /run/vgpu as root, else "
        "the user's runtime directory]",
    )(command)


def fast_option(command: _Command) -> _Command:
    """Adds ``--fast``: calls of a simulated driver cost nothing, as ``fast: bool``."""
    return click.option(
        "--fast",
        is_flag=True,
        help="Let calls of the simulated driver take no longer than the simulation needs; without "
        "it they take what they took on an H100.",
    )(command)


def compute_option(help_text: str) -> Callable[[_Command], _Command]:
    """Adds ``--compute``, how a share is held, as ``compute: ComputeMode | None``."""
    return click.option(
        "--compute", type=click.Choice(COMPUTE_WORDS), callback=_compute_mode, help=help_text
    )


def _compute_mode(
    context: click.Context, parameter: click.Parameter, word: str | None
) -> ComputeMode | None:
    return None if word is None else ComputeMode.of(word)


def chosen_run_dir(run_dir: Path | None) -> Path:
    """Returns the directory of ``--run-dir``, or the default one.

    Called only once the rest of the command line is known to be good, since the default one is
    made and checked on the way.

    Raises:
        UsageError: the default one belongs to somebody else.
    """
    return allocation_dirs.default_run_dir() if run_dir is None else run_dir


def state_dir_option(command: _Command) -> _Command:
    """Adds ``--state-dir``, the node agent's, as ``state_dir: Path``."""
    return click.option(
        "--state-dir",
        type=_DIRECTORY,
        envvar="VGPU_STATE_DIR",
        default=DEFAULT_STATE_DIR,
        show_default=True,
        help="The node agent's state; also VGPU_STATE_DIR.",
    )(command)


def node_dirs_options(command: _Command) -> _Command:
    """Adds ``--run-dir``, ``--state-dir`` and ``--kubelet-dir`` with the agent's defaults."""
    command = click.option(
        "--kubelet-dir",
        type=_DIRECTORY,
        envvar="VGPU_KUBELET_DIR",
        default=DEFAULT_KUBELET_DIR,
        show_default=True,
        help="The kubelet's directory; also VGPU_KUBELET_DIR.",
    )(command)
    return run_dir_option(state_dir_option(command))


def output_option(command: _Command) -> _Command:
    """Adds ``-o table|json`` as ``output: str``."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="For people or for programs.",
    )(command)
