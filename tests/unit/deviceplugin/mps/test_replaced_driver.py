"""A runner whose driver was replaced ends, so that a new one loads the new library."""

import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from deviceplugin.mps import runner
from deviceplugin.mps.compute_mode import NvmlBoards
from deviceplugin.mps.state_files import Wanted, write_wanted
from libvgpu.errors import DriverReplacedError, MpsError
from support.node.in_process import GivenGpus

DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH = 9, 18


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


@pytest.mark.parametrize(
    ("error", "is_final"), [(DRIVER_NOT_LOADED, False), (LIB_RM_VERSION_MISMATCH, True)]
)
def test_boards_say_when_nvml_is_of_another_driver(
    monkeypatch: pytest.MonkeyPatch, error: int, is_final: bool
) -> None:
    def refuse() -> None:
        raise NvmlError(error)

    fake = SimpleNamespace(NVMLError=NvmlError, nvmlInit=refuse)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    boards = NvmlBoards()

    with pytest.raises(MpsError, match="cannot be asked or set up for MPS"):
        boards.compute_mode("GPU-a")

    assert isinstance(boards.failure, DriverReplacedError) == is_final


def test_a_runner_ends_with_what_its_boards_say(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "tool_path", lambda: Path("tool"))
    (tmp_path / "mps").mkdir()
    write_wanted(tmp_path, Wanted("token", {}))
    boards, asked = NvmlBoards(), threading.Event()

    def failure() -> DriverReplacedError | None:
        was_asked = asked.is_set()
        asked.set()  # the first time all is well
        return DriverReplacedError("replaced") if was_asked else None

    stop = threading.Event()
    with pytest.raises(DriverReplacedError, match="replaced"):
        runner.run(tmp_path / "none.yaml", tmp_path, GivenGpus(), boards, stop, failure=failure)
