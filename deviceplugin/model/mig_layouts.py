"""Into which MIG devices the config has GPUs cut."""

from dataclasses import dataclass

from .device_match import DeviceMatch


@dataclass(frozen=True, slots=True)
class MigLayout:
    """One entry of ``mig``.

    Attributes:
        devices: indexes or UUIDs of GPUs; None means all.
        profiles: how many of each; empty where the GPU is not to be in MIG mode.
        path: where it stands in the file.
    """

    devices: tuple[int | str, ...] | None
    match: DeviceMatch
    profiles: tuple[tuple[str, int], ...]
    path: str
