"""What tests share besides fixtures: types and small helpers, imported as ``support``.

CUDA programs of tests import it, too, and ``pathlib`` is a sixth of what they take to start.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    ROOT: Path

#: ``compile_program(source, *more_sources, flags=())`` -> path of the built program.
Compile = Callable[..., "Path"]

#: Whether tests take their long form, as `make check-long` has them do.
IS_LONG = os.environ.get("VGPU_LONG") == "1"

_ROOT = os.path.realpath(f"{__file__}/../../..")

#: PYTHONPATH of the CUDA programs that tests start: what they import of ours, and what makes the
#: bindings start in half the time.
CLIENT_PATH = os.pathsep.join((f"{_ROOT}/tests/clients/quick", f"{_ROOT}/tests", _ROOT))


def __getattr__(name: str) -> Any:
    """Makes ``ROOT``, the checkout, when it is first asked for."""
    if name != "ROOT":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pathlib import Path

    globals()[name] = Path(_ROOT)
    return globals()[name]


def open_to_others(folder: "Path") -> None:
    """Lets other users reach a folder of pytest's: whatever lies above it below the shared one."""
    while not folder.stat().st_mode & 0o001:
        folder.chmod(0o755)
        folder = folder.parent
