"""What `vgpuctl config validate` says of configs, good and bad, and where it finds them."""

import io
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
    assert said.out.startswith(f"{config}: good\n")
    sick, withheld = said.err.splitlines()
    assert "nothing of GPU 2 (GPU-c) is offered now: NVML says: Unknown Error" in sick
    assert "nothing of GPU 1 (GPU-b) is offered: NVML does not tell how much memory" in withheld


MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: vgpu-config}
data:
  good: |
    version: v1
    sharing:
      fractional: [{family: vgpu, devices: [1], memoryUnit: 512Mi}]
      timeSlicing: {resources: [{name: gpu, replicas: 10}]}
    limits: [{core: 20}]
  bad: |
    version: v1
    limits:
    - {core: 0}
    - {memory: 4}
  short: "version: v2"
"""


def test_each_config_of_a_manifest_is_checked_and_errors_have_its_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(MANIFEST))

    assert main(["config", "validate", "-"]) == 2

    said, half = capsys.readouterr(), "nvidia.com/vgpu"
    assert [line.split() for line in said.out.splitlines()] == [
        ["stdin", "(good):", "good"],
        f"sharing.fractional[0] {half}-core by 1 %, {half}-memory by 512 MiB, of GPU 1".split(),
        ["sharing.timeSlicing.resources[0]", "10", "nvidia.com/gpu", "a", "GPU"],
        ["limits", "1", "rule"],
    ]
    assert [line.split(" must")[0].split(" has")[0] for line in said.err.splitlines()] == [
        "vgpuctl: stdin (bad) line 14: limits[0].core 0",
        "vgpuctl: stdin (bad) line 15: limits[1].memory '4'",
        "vgpuctl: stdin (short) line 16: version is 'v2', allowed is: v1",
    ]


@pytest.mark.parametrize("data", ["", "data: {}", "data: {a: [1]}"])
def test_a_manifest_without_a_text_is_refused(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(f"kind: ConfigMap\n{data}\n")

    assert main(["config", "validate", str(file)]) == 2

    assert f"{file} line " in capsys.readouterr().err
