"""Machines as users write them: ``GPU[,GPU...][,driver=RELEASE][/cudaX.Y][@NAME]``.

A GPU is ``PROFILE[*N][/mig[=LAYOUT]]``: N of that profile, each in MIG mode and cut into what
`mig.parse_layout` reads. A release of the driver brings a version of CUDA. A newer one may be named
with it, as NVIDIA's package for forward compatibility brings one.
"""

import re
from dataclasses import dataclass, replace

from ..driver_releases import CUDA_VERSIONS, DEFAULT_CUDA, RELEASES, DriverRelease
from ..errors import UsageError
from .mig import NONE, parse_layout
from .profiles import Profile, find_profile

#: As users write it -> as cuDriverGetVersion gives it.
DRIVER_VERSIONS = CUDA_VERSIONS
#: What a machine has unless another one is asked for.
DEFAULT_DRIVER = DEFAULT_CUDA
#: SIM_MAX_GPUS in sim/core/machine_api.h
MAX_GPUS = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")
_DRIVER = re.compile(r"^(?P<gpus>.*)/cuda(?P<version>[^/,*]*)$")
_RELEASE = re.compile(r"(?:^|,)\s*driver=(?P<name>[^,/*]*)")
_FORM = (
    "PROFILE[*N][/mig=KIND[*M][+KIND[*M]...]][,PROFILE[*N]...][,driver=RELEASE][/cudaX.Y][@NAME]"
)
_GPU = re.compile(r"(?P<whole>.*?)(?P<mig>/mig(?:=(?P<layout>[^/]*))?)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What machine is wanted.

    Attributes:
        profiles: of its GPUs, in order.
        name: under which processes share it; None for one of its own.
        driver_version: 13000 for CUDA 13.0; None where the text says nothing of it.
        release: of the driver; None where the text says nothing of it.
    """

    profiles: tuple[Profile, ...]
    name: str | None = None
    driver_version: int | None = None
    release: DriverRelease | None = None


def format_driver_version(version: int) -> str:
    """Returns 13000 as ``13.0``."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _split_driver(gpus: str, text: str) -> tuple[str, int | None]:
    match = _DRIVER.match(gpus)
    if match is None:
        return gpus, None
    if match["version"].endswith(".yaml"):  # a file of that name
        return gpus, None
    version = DRIVER_VERSIONS.get(match["version"])
    if version is None:
        raise UsageError(
            f"CUDA version {match['version']!r} in {text!r} is not simulated: "
            f"there are {', '.join(DRIVER_VERSIONS)}"
        )
    return match["gpus"], version


def _split_release(gpus: str, text: str) -> tuple[str, DriverRelease | None]:
    found = list(_RELEASE.finditer(gpus))
    if not found:
        return gpus, None
    if len(found) > 1:
        raise UsageError(f"{text!r} names {len(found)} drivers: a machine has one")
    release = RELEASES.get(found[0]["name"].strip())
    if release is None:
        raise UsageError(
            f"driver {found[0]['name']!r} in {text!r} is not simulated: "
            f"there are {', '.join(RELEASES)}"
        )
    before, behind = gpus[: found[0].start()], gpus[found[0].end() :]
    return before + behind if before else behind.removeprefix(","), release


def _cuda_of(release: DriverRelease, cuda: int | None, text: str) -> int:
    """Returns the CUDA of a machine with this driver, for which ``cuda`` may be asked."""
    if cuda is not None and cuda < release.cuda_version:
        raise UsageError(
            f"driver {release.name} in {text!r} brings CUDA "
            f"{format_driver_version(release.cuda_version)}: it can have that or a newer one, not "
            f"{format_driver_version(cuda)}"
        )
    return cuda or release.cuda_version


def _count(part: str, text: str) -> tuple[str, int]:
    """Returns what ``NAME*N`` in ``text`` names, and N."""
    name, star, count = part.strip().partition("*")
    if star and not re.fullmatch(r"[1-9]\d{0,3}", count):
        raise UsageError(
            f"{part.strip()!r} in {text!r} does not say how many: "
            f"give PROFILE*N with N from 1 to {MAX_GPUS}"
        )
    return name, int(count) if star else 1


def _gpus(part: str, text: str) -> list[Profile]:
    """Returns the GPUs of one part between commas."""
    match = _GPU.fullmatch(part.strip())
    assert match is not None  # it takes any text
    name, count = _count(match["whole"], text)
    if not name:
        raise UsageError(f"{text!r} names no GPU profile: give {_FORM}")
    profile = find_profile(name)
    if match["mig"]:
        layout = NONE if match["layout"] is None else match["layout"]
        placed = parse_layout(layout, profile.mig_profiles, profile.name)
        profile = replace(profile, mig_layout=placed)
    return [profile] * min(count, MAX_GPUS + 1)


def _without_call_costs(profile: Profile) -> Profile:
    return replace(profile, calibration=profile.calibration.without_call_costs())


def parse_spec(text: str, *, fast: bool = False) -> MachineSpec:
    """Returns the machine that ``text`` describes, for example ``a100-80g*2,t4/cuda12.4@lab``.

    Args:
        text: as users write it.
        fast: calls of its driver cost the host nothing.

    Raises:
        UsageError: naming the part that is wrong and what is allowed.
    """
    gpus, at, name = text.partition("@")
    if at and not _NAME.fullmatch(name):
        raise UsageError(
            f"machine name {name!r} in {text!r} is not allowed: use 1 to 32 letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit"
        )
    gpus, release = _split_release(gpus, text)
    gpus, driver_version = _split_driver(gpus, text)
    if release is not None:
        driver_version = _cuda_of(release, driver_version, text)
    profiles: list[Profile] = []
    for part in gpus.split(","):
        profiles.extend(_without_call_costs(p) if fast else p for p in _gpus(part, text))
        if len(profiles) > MAX_GPUS:
            raise UsageError(
                f"{text!r} asks for more GPUs than a machine can have: at most {MAX_GPUS}"
            )
    return MachineSpec(tuple(profiles), name or None, driver_version, release)
