"""Tools that the driver calls back within its calls for contexts: charged, and not held up."""

from pathlib import Path

import pytest

from libvgpu.artifacts import SIM_LIBRARY_DIR
from support import Compile
from support.lines import next_line, start_listening, tell
from support.shim.lacking import with_libraries
from support.shim.slices import SliceOf
from support.shim.walk import assert_exact, look_at
from support.sim.measured import measured_machine

MIB, GIB = 1 << 20, 1 << 30
DRIVER = "libcuda.so.1"
CONTEXT_BYTES = 518 * MIB
TOOLS = ["launches", "allocates", "limits", "retains", "borrows", "creates"]


@pytest.fixture
def calling(compile_program: Compile, tmp_path: Path) -> Path:
    """Returns a folder with a driver that calls tools back."""
    shared, simulated = ("-shared", "-fPIC"), f"{SIM_LIBRARY_DIR}/{DRIVER}"
    # The loader takes a second library of one name only where it is needed by its path.
    named = compile_program(
        "calling_driver.c", flags=(*shared, "-DNAME_ALONE", f"-Wl,-soname,{simulated}")
    )
    library = compile_program(
        "calling_driver.c",
        "-Wl,--no-as-needed",
        str(named),
        flags=(*shared, f'-DSIMULATED="{simulated}"', f"-Wl,-soname,{DRIVER}"),
    )
    folder = tmp_path / "calling"
    folder.mkdir()
    (folder / DRIVER).symlink_to(library)
    return folder


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(("made", "calls"), [("primary", 2), ("created", 3)])
def test_what_a_tool_does_within_a_call_for_a_context_is_charged(
    calling: Path,
    compile_program: Compile,
    tmp_path: Path,
    slice_of: SliceOf,
    made: str,
    calls: int,
    tool: str,
) -> None:
    part = with_libraries(slice_of(measured_machine(tmp_path), memory_bytes=16 * GIB), calling)
    flags = (f"-L{SIM_LIBRARY_DIR}", f"-l:{DRIVER}", "-rdynamic")
    program = compile_program("called_back.c", flags=flags)
    process = start_listening([program, made, tool], part.environment())
    part.processes.append(process)

    looks = {}
    while (line := next_line(process)).startswith("look "):
        looks[line[5:]] = look_at(part)
        tell(process)

    assert int(line) == calls
    assert_exact(looks)
    assert list(looks) == ["made", "limited", "ended"]
    assert looks["made"].taken_bytes >= CONTEXT_BYTES
