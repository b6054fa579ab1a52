"""Machines as users write them: ``PROFILE[*N][,PROFILE[*N]...][@NAME]``."""

import re
from dataclasses import dataclass

from ..errors import UsageError
from .profiles import Profile, find_profile

#: SIM_MAX_DEVICES in sim/core/machine_api.h
MAX_DEVICES = 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """What machine is wanted.

    Attributes:
        profiles: of its GPUs, in order.
        name: under which processes share it; None for one of its own.
    """

    profiles: tuple[Profile, ...]
    name: str | None = None


def parse_spec(text: str) -> MachineSpec:
    """Returns the machine that ``text`` describes, for example ``a100-80g*2,t4@lab``.

    Raises:
        UsageError: naming the part that is wrong and what is allowed.
    """
    gpus, at, name = text.partition("@")
    if at and not _NAME.fullmatch(name):
        raise UsageError(
            f"machine name {name!r} in {text!r} is not allowed: use 1 to 32 letters, digits, "
            "'.', '_' and '-', beginning with a letter or digit"
        )
    profiles: list[Profile] = []
    for part in gpus.split(","):
        profile_name, star, count_text = part.strip().partition("*")
        count = 1
        if star:
            if not re.fullmatch(r"[1-9]\d{0,3}", count_text):
                raise UsageError(
                    f"{part.strip()!r} in {text!r} does not say how many GPUs: "
                    f"give PROFILE*N with N from 1 to {MAX_DEVICES}"
                )
            count = int(count_text)
        if not profile_name:
            raise UsageError(f"{text!r} names no GPU profile: give PROFILE[*N][,PROFILE[*N]...]")
        profiles.extend([find_profile(profile_name)] * count)
        if len(profiles) > MAX_DEVICES:
            raise UsageError(
                f"{text!r} asks for more GPUs than a machine can have: at most {MAX_DEVICES}"
            )
    return MachineSpec(tuple(profiles), name or None)
