"""What the driver of a GPU gives, asked of it: exercises expect these sizes and know no others.

The same questions (`driver_probe`) go to the simulated driver and to a real one.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from libvgpu.errors import VgpuError
from support.ended import run_to_end

MIB = 1 << 20
#: Limits of a context (CUlimit) that are device memory, each with what is added to its default.
STACK, PRINTF_BUFFER, HEAP = 0, 1, 2
RAISED_BYTES = {HEAP: MIB, PRINTF_BUFFER: MIB, STACK: 16}
#: In place of the code of a function that the driver does not have.
NOT_THERE = -1


@dataclass(frozen=True)
class Sizes:
    """The driver's answers.

    Attributes:
        uuid: of the GPU, which is CUDA's device 0 and NVML's.
        gpus: how many NVML knows of.
        context_bytes: of the first context of a process.
        green_context_bytes: of one of all SMs, next to the primary context; 0 without any.
        block_bytes: what the driver takes memory of more than 1 MiB by.
        granule_bytes: what memory by handle is created by.
        pool_bytes: what a memory pool grows by.
        limit_bytes: what each limit takes at once when it is raised by `RAISED_BYTES`.
        outdated_code: what calls of before CUDA 3.2 give in a present context.
        codes: CUresult, or nvmlReturn_t, of calls that not every driver can do.
    """

    uuid: str
    gpus: int
    context_bytes: int
    green_context_bytes: int
    block_bytes: int
    granule_bytes: int
    pool_bytes: int
    limit_bytes: dict[int, int]
    outdated_code: int
    codes: dict[str, int]

    def of_blocks(self, bytes: int) -> int:
        """Returns what the device gives where this much is asked for: more than 1 MiB."""
        return _rounded(bytes, self.block_bytes)

    def of_pool(self, bytes: int) -> int:
        """Returns what an empty pool takes where this much is asked for."""
        return _rounded(bytes, self.pool_bytes)

    @classmethod
    def from_json(cls, text: str) -> "Sizes":
        fields = json.loads(text)
        fields["limit_bytes"] = {int(limit): size for limit, size in fields["limit_bytes"].items()}
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def _rounded(bytes: int, unit: int) -> int:
    return -(-bytes // unit) * unit


def ask(uuid: str, environment: Mapping[str, str]) -> Sizes:
    """Returns what the driver answers about a GPU, on which nothing else may run meanwhile.

    Args:
        uuid: as NVML has it.
        environment: in which a program finds the GPU, without the shim.

    Raises:
        VgpuError: the driver refuses what every driver can do.
    """
    done = run_to_end(
        [sys.executable, "-m", "support.exercise.driver_probe", uuid], env=dict(environment)
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise VgpuError(f"GPU {uuid} could not be asked for the sizes of its memory: {last}")
    return Sizes.from_json(done.stdout)
