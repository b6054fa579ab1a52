"""Chance in tests (a pytest plugin): the same in each run, and never a matter of time.

By itself Hypothesis bounds how long an example and the making of all examples may take, and keeps
what failed for the next run. Here a slow machine is no failure, and a run leaves nothing behind.
The long form, and ``VGPU_RANDOM=1``, have other examples in each run, and print what repeats a
failure; ``VGPU_RANDOM=0`` has the same ones there, too.
"""

import os

from hypothesis import HealthCheck, settings

from support import IS_LONG

VARIABLE = "VGPU_RANDOM"
#: 0 is what is always the same, 1 what is not, and another number an order (`shuffled`).
RANDOM = os.environ.get(VARIABLE) or ("1" if IS_LONG else "0")

settings.register_profile(
    "vgpu",
    derandomize=RANDOM == "0",
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("vgpu")
