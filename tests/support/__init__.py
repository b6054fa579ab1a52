"""What tests share besides fixtures: types and small helpers, imported as ``support``."""

import os
from collections.abc import Callable
from pathlib import Path

#: ``compile_program(source, *more_sources, flags=())`` -> path of the built program.
Compile = Callable[..., Path]

#: Whether tests take their long form, as `make check-long` has them do.
IS_LONG = os.environ.get("VGPU_LONG") == "1"

ROOT = Path(__file__).resolve().parent.parent.parent

#: PYTHONPATH of the CUDA programs that tests start: what they import of ours, and what makes the
#: bindings start in half the time.
CLIENT_PATH = os.pathsep.join(map(str, (ROOT / "tests/clients/quick", ROOT / "tests", ROOT)))


def open_to_others(folder: Path) -> None:
    """Lets other users reach a folder of pytest's: whatever lies above it below the shared one."""
    while not folder.stat().st_mode & 0o001:
        folder.chmod(0o755)
        folder = folder.parent
