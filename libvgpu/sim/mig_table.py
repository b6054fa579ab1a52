"""The table of MIG instances in a file of `models`, as it is written there."""

from typing import Annotated, Any, Literal

import msgspec

from .mig import SLICES, MigProfile


def number(most: int, least: int = 1) -> Any:
    """Returns the type of a whole number within bounds."""
    return Annotated[int, msgspec.Meta(ge=least, le=most)]


def text(pattern: str) -> Any:
    """Returns the type of a string of a form."""
    return Annotated[str, msgspec.Meta(pattern=pattern)]


class MigRow(msgspec.Struct, forbid_unknown_fields=True):
    """A kind of MIG instance; `MigProfile` says what the fields are."""

    name: text(r"^[1-7]g\.[1-9]\d{0,3}gb(\+me)?$")  # type: ignore[valid-type]
    number: number(17, 0)  # type: ignore[valid-type]
    id: number(255, 0)  # type: ignore[valid-type]
    slices: Literal[1, 2, 3, 4, 7]
    sm_count: number(1024)  # type: ignore[valid-type]
    memory_mib: number(1 << 24)  # type: ignore[valid-type]
    copy_engines: number(255, 0)  # type: ignore[valid-type]
    decoders: number(255, 0)  # type: ignore[valid-type]
    encoders: number(255, 0)  # type: ignore[valid-type]
    jpeg_engines: number(255, 0)  # type: ignore[valid-type]
    optical_flow_engines: number(255, 0)  # type: ignore[valid-type]
    instances: number(7)  # type: ignore[valid-type]
    size: Literal[1, 2, 4, 8]
    starts: Annotated[list[number(7, 0)], msgspec.Meta(min_length=1)]  # type: ignore[valid-type]

    def profile(self) -> MigProfile:
        """Returns what the row says."""
        return MigProfile(**{**msgspec.structs.asdict(self), "starts": tuple(self.starts)})


def wrong_starts(row: MigRow) -> str | None:
    """Returns why the places of a kind of instance cannot be, None where they can."""
    if all(start % row.size == 0 and start + row.size <= SLICES for start in row.starts):
        return None
    return (
        f"starts of {row.name} is {row.starts}, but what has {row.size} slices of memory begins "
        f"at a multiple of that and ends within {SLICES}"
    )
