"""The stand-in API server for tests; they need openssl for its certificate."""

import shutil
from pathlib import Path

import pytest

from benchmarks.api_server import StandInApiServer


def make_api_server(base: Path) -> StandInApiServer:
    """Returns one that does not serve yet; skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the test's certificate, is not installed")
    return StandInApiServer(base)
