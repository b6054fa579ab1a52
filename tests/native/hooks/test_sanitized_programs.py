"""Programs with AddressSanitizer under the shim: it asks for libc's functions by dlsym, so by the
shim, before its own stand-ins for them may be called.
"""

import subprocess

import pytest

from support import Compile
from support.shim.slices import Slice
from support.waiting import PATIENCE_S

#: Leaks are looked for by ptrace, which nobody traced may do.
OPTIONS = "detect_leaks=0"


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        (("-fsanitize=address", "-static-libasan"), OPTIONS),
        # The library of that runtime wants to be the first one, which a preloaded one is.
        (("-fsanitize=address",), f"{OPTIONS}:verify_asan_link_order=0"),
    ],
    ids=["within", "as-a-library"],
)
def test_a_program_with_a_sanitizer_runs_under_the_shim(
    compile_program: Compile, part: Slice, flags: tuple[str, ...], options: str
) -> None:
    try:
        program = compile_program("sanitized_program.c", flags=flags)
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no AddressSanitizer")
    environment = part.environment() | {"ASAN_OPTIONS": options}
    ended = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")
