"""Simulated machines with a given release of the driver."""

from dataclasses import replace
from pathlib import Path

from libvgpu.driver_releases import RELEASES
from libvgpu.sim import PROFILES, Machine

#: Releases whose lists of processes differ: no `_v3`, short entries, long ones, no `_v3` again, as
#: today.
FORMS = ("470", "525", "535.54", "535.98", "580")
#: The programs of the tests ask for everything by cuGetProcAddress_v2. On an older driver they need
#: what NVIDIA's package for forward compatibility brings.
_FIRST_OF_PROGRAMS = 12040


def machine_of(name: str, directory: Path, *, context_bytes: int | None = None) -> Machine:
    """Makes a machine of one H100 with the driver of this name.

    Args:
        context_bytes: what a context costs; by default what the profile says.
    """
    release, profile = RELEASES[name], PROFILES["h100-80g"]
    if context_bytes is not None:
        profile = replace(profile, context_bytes=context_bytes)
    cuda = max(release.cuda_version, _FIRST_OF_PROGRAMS)
    return Machine.create([profile], directory, cuda, release)


def driver_of(environment: dict[str, str]) -> Path:
    """Returns the CUDA driver that a program loads in the environment of a machine."""
    folders = map(Path, environment["LD_LIBRARY_PATH"].split(":"))
    return next(at for folder in folders if (at := folder / "libcuda.so.1").exists())
