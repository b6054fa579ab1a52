"""The page about labels names the labels that the agent writes, no more and no less."""

import re
from dataclasses import replace

from deviceplugin.labels.node_labels import node_labels
from deviceplugin.labels.offered import FreeSlice, Machine, Offered, SharingStrategy, VirtualGpu
from deviceplugin.model.gpus import Gpu, MigPart
from support import ROOT

PAGE = ROOT / "docs" / "labels.md"
PROFILE = "1g.5gb"


def gpu_in_mig_mode() -> Gpu:
    device = Gpu(0, "MIG-0", "mig", 1 << 30, mig=MigPart("GPU-0", 0, PROFILE, 1, 0))
    return Gpu(
        0, "GPU-0", "test", 1 << 30, driver="550.54.15", cuda_version=(12, 4), compute_major=8,
        compute_minor=0, is_mig_enabled=True, mig_devices=(device,),
    )  # fmt: skip


def written() -> set[str]:
    """Returns the labels of nodes that between them have all there are, as the page writes them."""
    slices = tuple(
        FreeSlice(family, "0", family, SharingStrategy.NONE, 1, 1, 1) for family in ("vgpu", "mps")
    )
    offered = Offered(slices=slices)
    machine = Machine(virtual_gpus=(VirtualGpu(),))
    gpus = [gpu_in_mig_mode()]
    keys: set[str] = set()
    for strategy in ("single", "mixed"):
        keys |= node_labels(gpus, replace(offered, mig_strategy=strategy), machine, 1).keys()
    keys = {re.sub(r"/(vgpu|mps)\.(free|largest)", r"/<family>.\2", key) for key in keys}
    keys = {re.sub(r"(free-\w+)\.0$", r"\1.<gpu>", key) for key in keys}
    return {key.replace(f"mig-{PROFILE}", "mig-<profile>") for key in keys}


def test_the_page_has_every_label_and_no_other() -> None:
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith("| `nvidia.com/")]
    told = {
        label for row in tables for label in re.findall(r"`(nvidia\.com/[^`]+)`", row.split("|")[1])
    }

    assert told == written()
