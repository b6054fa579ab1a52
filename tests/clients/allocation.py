"""`allocation.py BYTES COMMAND...`: holds device memory while COMMAND runs; exits with its
status."""

import subprocess
import sys
from typing import Any

from cuda.bindings import driver


def ok(answer: tuple[Any, ...]) -> Any:
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) > 1 else None


ok(driver.cuInit(0))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(ok(driver.cuDeviceGet(0))))))
ok(driver.cuMemAlloc(int(sys.argv[1])))
sys.exit(subprocess.run(sys.argv[2:], check=False).returncode)
