"""What the config file of a `chaos` node says: good ones by chance, and bad ones."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

GPUS = 8
MEMORY_MIB = 16 << 10
UNITS_MIB = (256, 512)
FAMILIES = ("vgpu", "mps")
_MPS_GPUS = 2
#: None of these is taken, and what was in force stays so.
BAD = (
    "version: v2\n",
    "",
    "{",
    "version: v1\nsharing: {fractional: [{family: vgpu, memoryUnit: 7Ti}]}\n",
    "version: v1\nsharing: {fractional: [{family: nobody}]}\n",
    "version: v1\nsharing: {fractional: [{family: mps}, {family: mps}]}\n",
    "version: v1\nunheard: true\n",
    "\x00\x01\x02",
    "a: &a [*a]\n",
)


@dataclass(frozen=True)
class Sharing:
    """A good config: the family of each GPU, and of each family the unit in MiB."""

    families: tuple[str, ...] = ("vgpu",) * (GPUS - _MPS_GPUS) + ("mps",) * _MPS_GPUS
    units_mib: Mapping[str, int] = field(
        default_factory=lambda: dict.fromkeys(FAMILIES, UNITS_MIB[0])
    )
    compute: str = "strict"

    def text(self) -> str:
        """Returns the file."""
        rows = ["version: v1", "sharing:", "  fractional:"]
        for family in FAMILIES:
            devices = [index for index, each in enumerate(self.families) if each == family]
            compute = f", compute: {self.compute}" if family == "vgpu" else ""
            if devices:
                unit = f"memoryUnit: {self.units_mib[family]}Mi"
                rows.append(f"  - {{family: {family}, devices: {devices}, {unit}{compute}}}")
        return "\n".join([*rows, ""])

    def offered(self) -> dict[str, int]:
        """Returns the units of each resource while nobody has any."""
        found: dict[str, int] = {}
        for family in self.families:
            for half, count in (("core", 100), ("memory", MEMORY_MIB // self.units_mib[family])):
                name = f"nvidia.com/{family}-{half}"
                found[name] = found.get(name, 0) + count
        return found

    def edited(self, chance: random.Random) -> "Sharing":
        """Returns one that differs in something."""
        what = chance.random()
        if what < 0.4:
            return replace(self, compute="elastic" if self.compute == "strict" else "strict")
        if what < 0.85:
            index = chance.randrange(GPUS)
            families = list(self.families)
            families[index] = "vgpu" if families[index] == "mps" else "mps"
            if len(set(families)) == len(FAMILIES):
                return replace(self, families=tuple(families))
        family = chance.choice(FAMILIES)
        unit_mib = UNITS_MIB[self.units_mib[family] == UNITS_MIB[0]]
        return replace(self, units_mib={**self.units_mib, family: unit_mib})


def put(path: Path, text: str, chance: random.Random | None = None) -> None:
    """Writes a config: whole, as a ConfigMap volume does it, or by chance in place and torn."""
    if chance is not None and chance.random() < 0.3:
        path.write_text(text[: len(text) // 2])
        return
    new = path.with_name("config.new")
    new.write_text(text)
    new.rename(path)
