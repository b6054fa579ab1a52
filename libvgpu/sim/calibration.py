"""How a GPU and its driver behave in time and memory, as measured on a real one.

Each calibration is a YAML file in ``calibrations``; a profile names the one it follows. Every
figure stands there with its source. A model that nobody measured follows the H100's.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from .._native import ffi, lib
from ..decoding import converter
from ..errors import UsageError
from ..yamltext import parse, read

CALIBRATIONS = Path(__file__).resolve().parent / "calibrations"
#: What a profile follows that names none, and what it was measured on.
DEFAULT = "h100"
#: What can vary, in the order of the machine file (``SIM_SPREAD_…``).
SPREADS = ("latency", "submission", "switch", "call", "kernel")
#: In place of the bytes of a green context: it takes what any context takes.
_AS_A_CONTEXT = (1 << 64) - 1


@functools.cache
def call_names() -> tuple[str, ...]:
    """Returns the driver calls that can have a cost, in the order of the machine file."""
    names = (lib.sim_call_name(index) for index in range(lib.SIM_CALLS))
    return tuple(ffi.string(name).decode() for name in names if name != ffi.NULL)


@dataclass(frozen=True, slots=True)
class Calibration:
    """The figures of a calibration; ``struct sim_calibration`` says what each means.

    Attributes:
        name: of the calibration.
        call_ns: what each call of `call_names` takes of the host at least.
        cold_call_ns: and how much more where its thread made none for `cold_after_ns`.
        spread_percent: how far from its figure each of `SPREADS` lies at most, each time.
        run_spread_percent: and how far all of one seed lie.
        spread_seed: decides what varies; 0: nothing does.
    """

    name: str
    slice_ns: int
    switch_ns: int
    preempt_ns: int
    idle_switch_ns: int
    latency_ns: int
    event_latency_ns: int
    cold_after_ns: int
    submit_percent: int
    event_ns: int
    dependent_overlap_ns: int
    concurrent: bool
    managed_as_touched: bool
    block_bytes: int
    small_bytes: int
    block_ns: int
    further_block_ns: int
    pool_granule_bytes: int
    green_context_bytes: int | None
    streams_bytes: int
    streams_per_step: int
    local_memory: bool
    local_step_bytes: int
    local_slack_bytes: int
    heap_bytes: int
    clock_ramp_after_ns: int
    clock_ramp_ns: int
    clock_ramp_percent: int
    call_ns: tuple[int, ...]
    cold_call_ns: tuple[int, ...]
    spread_percent: tuple[int, ...]
    run_spread_percent: tuple[int, ...]
    spread_seed: int = 0

    def without_call_costs(self) -> "Calibration":
        """Returns the same where calls cost the host nothing."""
        nothing = (0,) * len(self.call_ns)
        return replace(self, call_ns=nothing, cold_call_ns=nothing)

    def varied(self, seed: int) -> "Calibration":
        """Returns the same where costs vary as the seed has it; 0: where they do not."""
        return replace(self, spread_seed=seed)


_OF_CALLS = ("call_ns", "cold_call_ns")
_OF_SPREADS = ("spread_percent", "run_spread_percent")
_SINGLE = tuple(
    name
    for name in Calibration.__dataclass_fields__
    if name not in ("name", *_OF_CALLS, *_OF_SPREADS)
)
_FIGURES = tuple(name for name in _SINGLE if name != "spread_seed")

_Ns = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
_Source = Annotated[str, msgspec.Meta(min_length=1)]


_Percent = tuple[Annotated[int, msgspec.Meta(ge=0, le=90)], _Source]


class _Spread(msgspec.Struct, forbid_unknown_fields=True):
    """How far each of `SPREADS` varies at most, either way."""

    latency: _Percent
    submission: _Percent
    switch: _Percent
    call: _Percent
    kernel: _Percent


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of ``calibrations``: each figure with its source."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,30}$")]
    measured_on: str
    slice_ns: tuple[Annotated[int, msgspec.Meta(ge=1000, lt=1 << 32)], _Source]
    switch_ns: tuple[_Ns, _Source]
    preempt_ns: tuple[_Ns, _Source]
    idle_switch_ns: tuple[_Ns, _Source]
    latency_ns: tuple[_Ns, _Source]
    event_latency_ns: tuple[_Ns, _Source]
    cold_after_ns: tuple[_Ns, _Source]
    submit_percent: tuple[Annotated[int, msgspec.Meta(ge=0, le=100)], _Source]
    event_ns: tuple[_Ns, _Source]
    dependent_overlap_ns: tuple[_Ns, _Source]
    concurrent: tuple[bool, _Source]
    managed_as_touched: tuple[bool, _Source]
    block_bytes: tuple[Annotated[int, msgspec.Meta(ge=512, le=1 << 30)], _Source]
    small_bytes: tuple[_Bytes, _Source]
    block_ns: tuple[_Ns, _Source]
    further_block_ns: tuple[_Ns, _Source]
    pool_granule_bytes: tuple[Annotated[int, msgspec.Meta(ge=512, le=1 << 40)], _Source]
    green_context_bytes: tuple[_Bytes | None, _Source]
    streams_bytes: tuple[_Bytes, _Source]
    streams_per_step: tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 20)], _Source]
    local_memory: tuple[bool, _Source]
    local_step_bytes: tuple[Annotated[int, msgspec.Meta(ge=1, le=1 << 20)], _Source]
    local_slack_bytes: tuple[_Bytes, _Source]
    heap_bytes: tuple[_Bytes, _Source]
    clock_ramp_after_ns: tuple[_Ns, _Source]
    clock_ramp_ns: tuple[_Ns, _Source]
    clock_ramp_percent: tuple[Annotated[int, msgspec.Meta(ge=10, le=100)], _Source]
    call_ns: dict[str, tuple[_Ns, _Source]]
    spread_percent: _Spread
    run_spread_percent: _Spread
    cold_call_ns: dict[str, tuple[_Ns, _Source]] = {}


_file = converter(_File)


def read_calibration(path: Path) -> Calibration:
    """Returns the calibration that a file describes.

    Raises:
        ConfigError: it cannot be read, is not YAML, or a key is unknown, missing or wrong.
    """
    data, places = parse(read(path, "calibration"), str(path))
    try:
        file = _file(data)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `")
        key = place.rstrip("`").partition("[")[0] or "$"
        raise places.error(key, f"not a calibration of a GPU: {key[2:] or 'it'}: {what}") from None
    names = call_names()
    figures: dict[str, Any] = {name: getattr(file, name)[0] for name in _FIGURES}
    for key in _OF_CALLS:
        given = getattr(file, key)
        unknown = [name for name in given if name not in names]
        if unknown:
            raise places.error(
                f"$.{key}.{unknown[0]}",
                f"no cost can be given to {unknown[0]!r}; allowed are: {', '.join(names)}",
            )
        figures[key] = tuple(given[name][0] if name in given else 0 for name in names)
    for key in _OF_SPREADS:
        figures[key] = tuple(getattr(getattr(file, key), name)[0] for name in SPREADS)
    for name in ("block_bytes", "pool_granule_bytes"):
        if figures[name] & (figures[name] - 1):
            raise places.error(f"$.{name}", f"{name} is {figures[name]}, but must be a power of 2")
    return Calibration(name=file.name, **figures)


@functools.cache
def find_calibration(name: str) -> Calibration:
    """Returns the calibration of that name, or of the file at that path (what has a ``/`` in it).

    Raises:
        UsageError: there is none of that name (names those there are).
        ConfigError: the file is wrong (says how).
    """
    if "/" in name:
        return read_calibration(Path(name))
    path = CALIBRATIONS / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(path.stem for path in CALIBRATIONS.glob("*.yaml")))
        raise UsageError(
            f"unknown calibration {name!r}: there are {known}",
            hint="one of your own is given as a path, for example ./my.yaml",
        )
    return read_calibration(path)


def read_native(source: Any) -> Calibration:
    """Returns what a ``struct sim_calibration`` says."""
    figures: dict[str, Any] = {name: int(getattr(source, name)) for name in _SINGLE}
    for name in ("concurrent", "managed_as_touched", "local_memory"):
        figures[name] = bool(figures[name])
    if figures["green_context_bytes"] == _AS_A_CONTEXT:
        figures["green_context_bytes"] = None
    for name in _OF_CALLS:
        costs = getattr(source, name)
        figures[name] = tuple(int(costs[index]) for index in range(len(call_names())))
    for name in _OF_SPREADS:
        figures[name] = tuple(int(percent) for percent in getattr(source, name))
    return Calibration(name=ffi.string(source.name).decode(), **figures)


def fill_native(target: Any, calibration: Calibration) -> None:
    """Writes a calibration into a ``struct sim_calibration``."""
    target.name = calibration.name.encode()
    for name in _SINGLE:
        value = getattr(calibration, name)
        setattr(target, name, _AS_A_CONTEXT if value is None else int(value))
    for name in (*_OF_CALLS, *_OF_SPREADS):
        array = getattr(target, name)
        for index, value in enumerate(getattr(calibration, name)):
            array[index] = value
