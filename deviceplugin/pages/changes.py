"""What `vgpuctl set` asks of the agent, and what the agent answers."""

from typing import Annotated, Self

import msgspec

from deviceplugin.model.overrides import Override
from libvgpu.decoding import json_decoder
from libvgpu.limits import WHOLE_CORE_PERCENT, ComputeMode, ComputeWord
from libvgpu.sizes import MAX_BYTES, MIN_BYTES


class OverrideForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """An `Override` as JSON has it, in calls and in files."""

    core_percent: int | None = None
    memory_bytes: int | None = None
    compute: ComputeWord | None = None

    @classmethod
    def of(cls, override: Override) -> Self:
        """Returns the form of an override."""
        word = None if override.compute is None else override.compute.word
        return cls(override.core_percent, override.memory_bytes, word)

    def override(self) -> Override:
        """Returns what the form says."""
        mode = None if self.compute is None else ComputeMode.of(self.compute)
        return Override(self.core_percent, self.memory_bytes, mode)


class OverrideRequest(OverrideForm, frozen=True, forbid_unknown_fields=True):
    """The body of a POST: at least one value; one that is left out stays as it is."""

    core_percent: Annotated[int, msgspec.Meta(ge=1, le=WHOLE_CORE_PERCENT)] | None = None
    memory_bytes: Annotated[int, msgspec.Meta(ge=MIN_BYTES, le=MAX_BYTES)] | None = None


class LimitValues(msgspec.Struct, frozen=True):
    """What is in force on one device; ``compute`` is None where the family has no such value."""

    memory_bytes: int
    core_percent: int
    compute: str | None


class ChangedDevice(msgspec.Struct, frozen=True):
    """What a change did on one device.

    Attributes:
        pending: ``core`` and ``memory`` where they hold only in processes that start later.
    """

    gpu_uuid: str
    old: LimitValues
    new: LimitValues
    pending: tuple[str, ...]


class ChangedLimits(msgspec.Struct, frozen=True):
    """What a change did.

    Attributes:
        owner: NAMESPACE/POD/CONTAINER, empty while it is not known.
    """

    allocation: str
    owner: str
    devices: tuple[ChangedDevice, ...]


class Problem(msgspec.Struct, frozen=True):
    """Why something is not done."""

    message: str = ""
    hint: str | None = None


OVERRIDE, CHANGED = json_decoder(OverrideRequest), json_decoder(ChangedLimits)
PROBLEM = json_decoder(Problem)
