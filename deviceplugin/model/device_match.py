"""Which devices an entry of the config is for, by what they are."""

from dataclasses import dataclass

from .gpus import Gpu


@dataclass(frozen=True, slots=True)
class NamePattern:
    """Devices whose product, or MIG profile, fits ``pattern`` (``*`` is any text) are ``name``."""

    pattern: str
    name: str

    def fits(self, text: str) -> bool:
        """Returns whether the pattern is found in a text, as NVIDIA's plugin looks for it."""
        at = 0
        for part in self.pattern.split("*"):
            if (found := text.find(part, at)) < 0:
                return False
            at = found + len(part)
        return True


@dataclass(frozen=True, slots=True)
class DeviceMatch:
    """Which devices an entry is for, by what they are.

    Attributes:
        product: a pattern of NVML's name, ``*`` for any text.
        mig: None for GPUs and MIG devices alike; whether it is one; or its profile.
    """

    product: NamePattern | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    mig: bool | str | None = None

    @property
    def is_open(self) -> bool:
        """It is for every device."""
        return self == DeviceMatch()

    def fits(self, gpu: Gpu) -> bool:
        """Returns whether a device is one of them."""
        if self.product is not None and not self.product.fits(gpu.name):
            return False
        if self.min_bytes is not None and gpu.memory_bytes < self.min_bytes:
            return False
        if self.max_bytes is not None and not 0 < gpu.memory_bytes <= self.max_bytes:
            return False  # an unknown name cannot be the one that was meant
        if isinstance(self.mig, str):
            return gpu.mig is not None and gpu.mig.profile == self.mig
        is_cut = gpu.mig is not None or gpu.is_mig_enabled
        return self.mig is None or is_cut is self.mig


ANY_DEVICE = DeviceMatch()
