"""What the simulated GPU models are like.

Each model is a YAML file in ``models``; users may write their own. Memory, SM counts, clocks and
bandwidths there are those of the data sheets. A file is read when its model is asked for, and taken
whole or not at all.
"""

import difflib
import functools
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from libvgpu.places import Places
from libvgpu.yamltext import parse, read

from ..decoding import converter
from ..errors import UsageError
from ..sizes import whole_number
from .calibration import DEFAULT, Calibration, find_calibration
from .mig import MigProfile, Placed
from .mig_table import MigRow, number, text, wrong_starts

MIB = 1 << 20
KIB = 1 << 10
NVIDIA_VENDOR_ID = 0x10DE
#: Environment variable: the calibration of every GPU that is made, whatever its profile names.
CALIBRATION = "VGPU_SIM_CALIBRATION"
#: Environment variable: the seed by which their costs vary; unset or 0: they do not.
SPREAD = "VGPU_SIM_SPREAD"
MODELS = Path(__file__).resolve().parent / "models"
_GB = 10**9
_KHZ_PER_MHZ = 1000
_MILLIWATTS_PER_WATT = 1000

#: Architecture -> the compute capabilities that its GPUs have.
ARCHITECTURES: dict[str, tuple[tuple[int, int], ...]] = {
    "pascal": ((6, 0), (6, 1), (6, 2)),
    "volta": ((7, 0), (7, 2)),
    "turing": ((7, 5),),
    "ampere": ((8, 0), (8, 6), (8, 7)),
    "ada": ((8, 9),),
    "hopper": ((9, 0),),
    "blackwell": ((10, 0), (10, 3), (12, 0), (12, 1)),
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One model of GPU.

    Attributes:
        name: as users write it, for example ``a100-80g``.
        product: as NVML and CUDA name it.
        memory_bytes: device memory in all.
        context_bytes: what each context on it costs.
        sm_count: streaming multiprocessors.
        compute_capability: major and minor.
        cores_per_sm: FP32 cores.
        threads_per_sm: resident threads.
        blocks_per_sm: resident blocks.
        shared_bytes_per_sm: shared memory.
        shared_bytes_per_block: the most that one block can opt in to.
        l2_bytes: second-level cache.
        clock_khz: highest SM clock.
        memory_clock_khz: highest memory clock.
        memory_bus_bits: width of the memory bus.
        memory_bytes_per_second: bandwidth of device memory.
        pcie_bytes_per_second: bandwidth to the host, as copies reach it.
        power_limit_milliwatts: board power.
        pci_device_id: NVIDIA's number of the model.
        calibration: how it and its driver behave in time and memory.
        mig_profiles: what it can be cut into; none: it has no MIG.
        mig_layout: what it is cut into, by start; None: it is not in MIG mode.
    """

    name: str
    product: str
    memory_bytes: int
    context_bytes: int
    sm_count: int
    compute_capability: tuple[int, int]
    cores_per_sm: int
    threads_per_sm: int
    blocks_per_sm: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    l2_bytes: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes_per_second: int
    pcie_bytes_per_second: int
    power_limit_milliwatts: int
    pci_device_id: int
    calibration: Calibration
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_layout: tuple[Placed, ...] | None = None


class _Model(msgspec.Struct, forbid_unknown_fields=True):
    """A file of ``models``, or a user's. The upper bounds keep products within 64 bits, and are far
    above what is built."""

    # The machine file keeps 31 and 63 bytes of these two.
    name: text(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,30}$")  # type: ignore[valid-type]
    product: text(r"^[ -~]{1,63}$")  # type: ignore[valid-type]
    architecture: str
    compute_capability: tuple[int, int]
    memory_mib: number(1 << 24)  # type: ignore[valid-type]
    context_mib: number(1 << 16, 0)  # type: ignore[valid-type]
    memory_bandwidth_gb_per_s: number(1_000_000)  # type: ignore[valid-type]
    memory_bus_bits: number(1 << 20)  # type: ignore[valid-type]
    memory_clock_mhz: number(100_000)  # type: ignore[valid-type]
    sm_count: number(1024)  # type: ignore[valid-type]
    sm_clock_mhz: number(100_000)  # type: ignore[valid-type]
    cores_per_sm: number(1024)  # type: ignore[valid-type]
    threads_per_sm: number(8192, 1024)  # type: ignore[valid-type]
    blocks_per_sm: number(256)  # type: ignore[valid-type]
    shared_kib_per_sm: number(4096, 48)  # type: ignore[valid-type]
    shared_kib_per_block: number(4096, 48)  # type: ignore[valid-type]
    l2_kib: number(1 << 21)  # type: ignore[valid-type]
    pcie_bandwidth_gb_per_s: number(1_000_000)  # type: ignore[valid-type]
    power_limit_watts: number(100_000)  # type: ignore[valid-type]
    pci_device_id: number(0xFFFF)  # type: ignore[valid-type]
    calibration: str = DEFAULT
    call_costs: Literal["measured", "none"] = "measured"
    mig_profiles: Annotated[list[MigRow], msgspec.Meta(max_length=8)] = []

    def profile(self, calibration: Calibration) -> Profile:
        return Profile(
            name=self.name,
            product=self.product,
            memory_bytes=self.memory_mib * MIB,
            context_bytes=self.context_mib * MIB,
            sm_count=self.sm_count,
            compute_capability=self.compute_capability,
            cores_per_sm=self.cores_per_sm,
            threads_per_sm=self.threads_per_sm,
            blocks_per_sm=self.blocks_per_sm,
            shared_bytes_per_sm=self.shared_kib_per_sm * KIB,
            shared_bytes_per_block=self.shared_kib_per_block * KIB,
            l2_bytes=self.l2_kib * KIB,
            clock_khz=self.sm_clock_mhz * _KHZ_PER_MHZ,
            memory_clock_khz=self.memory_clock_mhz * _KHZ_PER_MHZ,
            memory_bus_bits=self.memory_bus_bits,
            memory_bytes_per_second=self.memory_bandwidth_gb_per_s * _GB,
            pcie_bytes_per_second=self.pcie_bandwidth_gb_per_s * _GB,
            power_limit_milliwatts=self.power_limit_watts * _MILLIWATTS_PER_WATT,
            pci_device_id=self.pci_device_id,
            calibration=calibration,
            mig_profiles=tuple(row.profile() for row in self.mig_profiles),
        )


_model = converter(_Model)


_FIELD_AT = re.compile(r"^(?P<text>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.S)
_NAMED_FIELD = re.compile(r"^Object (contains unknown|missing required) field `([^`]*)`")


def _convert(data: Any, places: Places) -> _Model:
    try:
        return _model(data)
    except msgspec.ValidationError as error:
        match = _FIELD_AT.match(str(error))
        text, path = (match["text"], match["path"] or "$") if match else (str(error), "$")
    named = _NAMED_FIELD.match(text)
    if named is None:
        expected = text.replace("`", "").replace("Expected ", "must be ").replace("got", "not")
        given = data.get(path[2:].partition("[")[0]) if isinstance(data, dict) else data
        what = f"{path[2:]} is {given!r}, but" if path != "$" else "a GPU profile"
        raise places.error(path, f"{what} {expected}")
    keys = list(_Model.__struct_fields__)
    if named[1] == "missing required":
        raise places.error("$", f"the GPU profile lacks the key {named[2]!r}")
    near = difflib.get_close_matches(named[2], keys, 1)
    raise places.error(
        f"$.{named[2]}",
        f"unknown key {named[2]!r}; allowed are: {', '.join(keys)}",
        f"did you mean {near[0]!r}?" if near else None,
    )


def read_profile(path: Path) -> Profile:
    """Returns the profile that a file describes.

    Raises:
        ConfigError: it cannot be read, is not YAML, or a key is unknown, missing or wrong.
    """
    data, places = parse(read(path, "GPU profile"), str(path))
    model = _convert(data, places)
    capabilities = ARCHITECTURES.get(model.architecture)
    if capabilities is None:
        raise places.error(
            "$.architecture",
            f"architecture is {model.architecture!r}, allowed are: {', '.join(ARCHITECTURES)}",
        )
    if model.compute_capability not in capabilities:
        allowed = " or ".join(f"[{major}, {minor}]" for major, minor in capabilities)
        raise places.error(
            "$.compute_capability",
            f"compute_capability is {list(model.compute_capability)}, but GPUs of architecture "
            f"{model.architecture} have {allowed}",
        )
    for part, whole in (
        ("context_mib", "memory_mib"),
        ("shared_kib_per_block", "shared_kib_per_sm"),
    ):
        if getattr(model, part) > getattr(model, whole):
            raise places.error(
                f"$.{part}",
                f"{part} is {getattr(model, part)}, more than {whole}, which is "
                f"{getattr(model, whole)}",
            )
    for index, kind in enumerate(model.mig_profiles):
        wrong = wrong_starts(kind)
        if wrong:
            raise places.error(f"$.mig_profiles[{index}].starts", wrong)
    try:
        calibration = find_calibration(os.environ.get(CALIBRATION) or model.calibration)
    except UsageError as error:
        raise places.error("$.calibration", error.message, error.hint) from None
    calibration = calibration.varied(_spread_seed())
    if model.call_costs == "none":
        calibration = calibration.without_call_costs()
    return model.profile(calibration)


def _spread_seed() -> int:
    """Returns the seed of what varies on GPUs that are made now, or 0.

    Raises:
        UsageError: the environment has no number there.
    """
    text = os.environ.get(SPREAD) or "0"
    seed = whole_number(text)
    if seed is None or seed >= 1 << 32:
        raise UsageError(f"{SPREAD} is {text!r}, but must be a number from 0 to {(1 << 32) - 1}")
    return seed


def ideal_profile(name: str) -> Profile:
    """Returns a profile on a GPU without friction: what holds there is due to nothing but us.

    Raises:
        UsageError: there is no profile of that name.
    """
    return replace(find_profile(name), calibration=find_calibration("ideal"))


class _Profiles(Mapping[str, Profile]):
    """The files of ``models`` by name, each read once it is asked for under a calibration."""

    @functools.cached_property
    def _paths(self) -> dict[str, Path]:
        return {path.stem: path for path in sorted(MODELS.glob("*.yaml"))}

    @functools.cached_property
    def _read(self) -> dict[tuple[str, str | None, str | None], Profile]:
        return {}

    def __getitem__(self, name: str) -> Profile:
        key = name, os.environ.get(CALIBRATION), os.environ.get(SPREAD)
        if key not in self._read:
            self._read[key] = read_profile(self._paths[name])
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


#: By name; `ALIASES` are further names of the same.
PROFILES: Mapping[str, Profile] = _Profiles()
ALIASES: dict[str, str] = {"h100": "h100-80g"}


def find_profile(name: str) -> Profile:
    """Returns the profile of that name or alias, or of the file at that path.

    What has a ``/`` in it or ends in ``.yaml`` is a path.

    Raises:
        UsageError: there is none (names those there are), or the file is wrong (says how).
    """
    if "/" in name or name.endswith(".yaml"):
        return read_profile(Path(name))
    try:
        return PROFILES[ALIASES.get(name, name)]
    except KeyError:
        known = ", ".join([*PROFILES, *ALIASES])
        raise UsageError(
            f"unknown GPU profile {name!r}: there are {known}",
            hint="a profile of your own is given as a path, for example ./my.yaml",
        ) from None
