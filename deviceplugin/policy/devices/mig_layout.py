"""Declared MIG layouts held against the GPUs that are there: what differs. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deviceplugin.model.gpus import Gpu
from deviceplugin.model.mig_layouts import MigLayout


@dataclass(frozen=True, slots=True)
class MigDifference:
    """One GPU that is not cut as its entry says.

    Attributes:
        wanted: profiles, the largest first; empty where it is not to be in MIG mode.
        problem: why it cannot be so, empty where it can.
    """

    gpu: Gpu
    wanted: tuple[str, ...]
    problem: str = ""

    def __str__(self) -> str:
        said = f"it is {described(profiles_of(self.gpu), self.gpu.is_mig_enabled)}"
        wish = described(self.wanted, bool(self.wanted))
        return f"{said}, the config says {wish}" + (f"; {self.problem}" if self.problem else "")


def profiles_of(gpu: Gpu) -> tuple[str, ...]:
    """Returns the profiles of a GPU's MIG devices, the largest first."""
    return in_order(part.mig.profile for part in gpu.mig_devices if part.mig is not None)


def in_order(profiles: Iterable[str]) -> tuple[str, ...]:
    """Returns profiles, the largest first: in this order the driver finds room for them."""
    return tuple(sorted(profiles, key=lambda p: (-int(p.partition("g")[0]), p)))


def described(profiles: Sequence[str], is_enabled: bool) -> str:
    """Returns a layout as a phrase."""
    if not is_enabled:
        return "not in MIG mode"
    counts = Counter(profiles)
    return ", ".join(f"{counts[p]} x {p}" for p in dict.fromkeys(profiles)) or "in MIG mode, uncut"


def mig_differences(layouts: Sequence[MigLayout], gpus: Iterable[Gpu]) -> list[MigDifference]:
    """Returns the GPUs that are not cut as the first entry for them says.

    Args:
        gpus: of the node, without their MIG devices.
    """
    found = []
    for gpu in gpus:
        entry = next((each for each in layouts if _is_for(each, gpu)), None)
        if entry is None:
            continue
        wanted = in_order(p for p, count in entry.profiles for _ in range(count))
        problem = "" if gpu.is_mig_capable or not wanted else "this GPU cannot be cut"
        if wanted != profiles_of(gpu) or bool(wanted) is not gpu.is_mig_enabled:
            found.append(MigDifference(gpu, wanted, problem))
    return found


def _is_for(entry: MigLayout, gpu: Gpu) -> bool:
    is_named = entry.devices is None or gpu.uuid in entry.devices or gpu.index in entry.devices
    return is_named and entry.match.fits(gpu)
