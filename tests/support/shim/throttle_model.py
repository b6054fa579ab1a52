"""Programs under a cap over simulated time: ``tests/native/throttle_cases.c`` and its kin."""

from dataclasses import dataclass

from support import Compile
from support.ended import printed
from support.shim.native_programs import shim_files

COMPUTE = (
    *(
        "throttle",
        "flight",
        "flight_settle",
        "program_habits",
        "timing",
        "gpu_clock",
        "batch",
        "budget",
        "estimate",
        "ration",
    ),
    *("virtual_time", "launch_wait", "window", "launch_queue", "cap", "sample_quality"),
    *("collective_debt", "utilisation"),
)
SLICE = ("limits_file", "usage_file", "checksum")
MODEL = ("throttle_model", "throttle_model_gpu")
#: What AddressSanitizer or the processor finds itself need not be looked for twice.
FLAGS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize=null,alignment,object-size",
    "-Wno-unused-parameter",
)


@dataclass(frozen=True)
class Seen:
    """What a case told of its steady state: numbers by name."""

    numbers: dict[str, int]

    def __getattr__(self, name: str) -> int:
        return self.numbers[name]

    @property
    def share(self) -> float:
        """Its percentage of the GPU, by what that did."""
        return 100 * self.busy_ns / self.passed_ns


def run_case(
    compile_program: Compile, name: str, *arguments: int, source: str = "throttle_cases.c"
) -> Seen:
    """Runs a case with its cap in percent and what it takes besides."""
    program = compile_program(
        source,
        *shim_files(*COMPUTE, *SLICE),
        *(f"tests/native/{each}.c" for each in MODEL),
        flags=FLAGS,
    )
    words = printed(program, name, *map(str, arguments)).split()
    return Seen({key: int(value) for key, value in zip(words[::2], words[1::2], strict=True)})
