"""What the tests of the watch share."""

from pathlib import Path

import pytest

from support.node.watch_world import WatchWorld


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> WatchWorld:
    """A watch with one slice, ``a``."""
    world = WatchWorld(tmp_path, monkeypatch, caplog)
    world.add()
    return world
