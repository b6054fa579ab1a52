"""A minute of `chaos` with few tenants."""

import subprocess
import sys

import pytest

from support import ROOT


@pytest.mark.long
@pytest.mark.root
def test_all_books_agree_through_a_minute_of_faults() -> None:
    command = [sys.executable, "-m", "benchmarks", "run", "chaos", "--minutes", "1"]

    done = subprocess.run([*command, "--count", "16"], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-8000:]
