"""The table of NVML's functions, NVIDIA's header and the simulated libraries name the same ones."""

import re
from itertools import pairwise

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from libvgpu.driver_releases import RELEASES, nvml_since
from support import ROOT
from support.shim.headers import NVML
from support.shim.symbols import exports

ENTRIES = ROOT / "libvgpu/sim/nvml/entries.def"
OURS = ROOT / "libvgpu/include/vgpu/nvml_api.h"


def rows(*kinds: str) -> list[str]:
    return re.findall(
        rf"^(?:{'|'.join(kinds)})\((nvml\w+), [\d.]+\)$", ENTRIES.read_text(), flags=re.MULTILINE
    )


@pytest.mark.skipif(NVML.path is None, reason=f"no {NVML.header}: install {NVML.package}")
def test_every_row_is_a_function_of_nvidias_header() -> None:
    assert NVML.path is not None
    declared = re.findall(r"DECLDIR\s+(?:char\s*\*)?\s*(nvml\w+)\s*\(", NVML.path.read_text())

    assert set(rows("ENTRY", "ABSENT")) <= set(declared)


def test_rows_stand_once_and_in_order() -> None:
    table = rows("ENTRY", "ABSENT")

    assert table == sorted(set(table))


def test_what_is_done_is_what_is_declared() -> None:
    declared = re.findall(
        r"^(?:nvmlReturn_t|const char \*)\s*(nvml\w+)\(", OURS.read_text(), flags=re.MULTILINE
    )

    assert set(rows("ENTRY")) == set(declared)


def test_the_newest_library_exports_the_rows_and_nothing_else() -> None:
    newest = list(RELEASES)[-1]
    library = SIM_LIBRARY_DIR / f"driver-{newest}" / "libnvidia-ml.so.1"

    assert exports(library) == set(rows("ENTRY", "ABSENT")) == nvml_since().keys()


def test_no_form_of_a_function_came_before_an_older_one() -> None:
    forms = [(*name.partition("_v"), since) for name, since in sorted(nvml_since().items())]
    pairs = [(a, b) for a, b in pairwise(forms) if a[0] == b[0]]

    assert len(pairs) > 10
    assert [(older, newer) for older, newer in pairs if older[-1] > newer[-1]] == []
