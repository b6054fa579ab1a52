"""Chance in tests (a pytest plugin): the same each time in the short form, and never a clock.

Hypothesis by itself bounds how long an example and the making of all may take, and keeps what
failed for the next run. Here a slow machine is no failure, and a run leaves nothing behind.
"""

from hypothesis import HealthCheck, settings

from . import IS_LONG

settings.register_profile(
    "vgpu",
    derandomize=not IS_LONG,  # the long form is random, and prints what repeats a failure
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("vgpu")
