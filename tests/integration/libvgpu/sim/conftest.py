"""What tests of programs from PyPI need."""

from pathlib import Path

import pytest

from support.sim.clients import Run, runner


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program to a good end on a whole simulated GPU or on a slice, and returns stdout."""
    return runner(tmp_path)
