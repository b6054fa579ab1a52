"""What `vgpuctl config validate --on-node` says of a config that is good."""

from pathlib import Path

import pytest

from deviceplugin.inventory.nvml import NvmlInventory
from deviceplugin.model.gpus import Gpu, GpuListing, SickGpu
from vgpuctl.__main__ import main

GIB = 1 << 30
SHARED = "version: v1\nsharing: {fractional: [{family: vgpu}]}\n"


def test_gpus_of_which_nothing_is_offered_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that does not tell its memory, and one that does not work."""
    here = (Gpu(0, "GPU-a", "A", 80 * GIB), Gpu(1, "GPU-b", "GB10", 0))
    listing = GpuListing(here, (SickGpu(2, "GPU-c", "NVML says: Unknown Error"),))
    monkeypatch.setattr(NvmlInventory, "listing", lambda self: listing)
    config = tmp_path / "config.yaml"
    config.write_text(SHARED)

    assert main(["config", "validate", "--on-node", str(config), "--state-dir", str(tmp_path)]) == 0

    said = capsys.readouterr()
    assert said.out == f"{config}: good: 1 sharing.fractional and 0 limits entries\n"
    sick, withheld = said.err.splitlines()
    assert "nothing of GPU 2 (GPU-c) is offered now: NVML says: Unknown Error" in sick
    assert "nothing of GPU 1 (GPU-b) is offered: NVML does not tell how much memory" in withheld
