"""Chance in tests (a pytest plugin): the same in each run, and never a matter of time.

By itself Hypothesis bounds how long an example and the making of all examples may take, and keeps
what failed for the next run. Here a slow machine is no failure, and a run leaves nothing behind.
``VGPU_RANDOM=1`` has other examples in each run, and prints what repeats a failure.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "vgpu",
    derandomize=os.environ.get("VGPU_RANDOM", "") in ("", "0"),
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("vgpu")
