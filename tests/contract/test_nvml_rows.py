"""What of NVML shows memory, processes or utilisation stands in the table of hooks."""

import pytest

from libvgpu.hook_table import read_hook_table
from support.shim.headers import NVML
from support.shim.nvml_names import OTHERWISE, functions, functions_that_match, functions_that_show

pytestmark = pytest.mark.skipif(
    NVML.path is None, reason=f"no {NVML.header}: install {NVML.package}"
)


def header() -> str:
    assert NVML.path is not None
    return NVML.path.read_text()


def rows() -> set[str]:
    return {row.symbol for row in read_hook_table() if row.symbol.startswith("nvml")}


def test_every_function_that_shows_memory_processes_or_utilisation_is_a_row() -> None:
    shown = functions_that_show(header())

    assert len(shown) > 50
    assert sorted(shown - rows()) == []


def test_every_row_is_a_function_of_the_header() -> None:
    assert sorted(rows() - functions(header()).keys()) == []


def test_no_exception_is_made_of_what_would_not_match() -> None:
    assert sorted(OTHERWISE.keys() - functions_that_match(header())) == []


@pytest.mark.parametrize(
    "declaration",
    [
        "nvmlReturn_t DECLDIR nvmlDeviceGetMemoryInfo_v9(nvmlDevice_t device, int *bytes);",
        """typedef struct { unsigned int pid; } nvmlNewThing_t;
           typedef struct { nvmlNewThing_t things[4]; } nvmlNewThings_t;
           nvmlReturn_t DECLDIR nvmlDeviceGetThings(nvmlDevice_t device, nvmlNewThings_t *list);""",
    ],
    ids=["by its name", "by what it fills"],
)
def test_a_new_function_would_be_found(declaration: str) -> None:
    assert len(functions_that_show(header() + declaration) - functions_that_show(header())) == 1
