"""The agent's image as `make image` builds it, for tests with real parts of Kubernetes."""

import importlib.util
from functools import lru_cache
from pathlib import Path

import pytest

from deploy.image.building import OUTPUT, Order, build
from deploy.image.downloads import Unreachable


def missing() -> str:
    """Returns as a sentence what keeps the image from being built here, empty if nothing does."""
    if importlib.util.find_spec("ziglang") is None:
        return "no ziglang, which compiles what is in the image: make image installs it"
    return ""


@lru_cache
def built() -> Path:
    """Returns the archive, of this checkout; the test is skipped where packages are not to be had.

    Raises:
        VgpuError: it does not build.
    """
    try:
        return build(Order()).archive
    except Unreachable as error:
        pytest.skip(error.message)


def simulated_driver() -> Path:
    """Returns the directory of the simulated driver's libraries that `built` has compiled.

    Unlike those of this machine's compiler they load in the image, whose glibc may be an older one.
    """
    # One for each Python that built here; they are of the same sources.
    return max((OUTPUT / "source/build").glob("lib*/libvgpu/sim/lib"))
