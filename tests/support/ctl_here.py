"""`vgpuctl` in this process: what it says and how it ends, without the start of a program.

For verbs that start nothing. That a program of its own does the same, whatever its streams are, is
in tests/integration/vgpuctl.
"""

import contextlib
import io
import os
import subprocess
from collections.abc import Mapping
from unittest import mock

from vgpuctl.__main__ import main


def run_here(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one command line.

    Args:
        arguments: as typed after ``vgpuctl``.
        environment: all of it; this process's own by default.
    """
    out, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, environment or {}, clear=environment is not None),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
    ):
        status = main(arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), errors.getvalue())
