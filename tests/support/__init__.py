"""What tests share beside fixtures: types and small helpers, imported as ``support``."""

from collections.abc import Callable
from pathlib import Path

#: ``compile_program(source, *more_sources, flags=())`` -> path of the built program.
Compile = Callable[..., Path]

ROOT = Path(__file__).resolve().parent.parent.parent
