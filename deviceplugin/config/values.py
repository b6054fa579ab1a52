"""Values that several sections of the config file have in common."""

from libvgpu.errors import UsageError
from libvgpu.limits import COMPUTE_WORDS, ComputeMode
from libvgpu.places import Places
from libvgpu.sizes import MAX_BYTES, Written, parse_size


def compute_mode(value: str | bool | None, path: str, places: Places) -> ComputeMode | None:
    """Returns how compute is held; None where nothing is said.

    Raises:
        ConfigError: no such mode.
    """
    if value is None:
        return None
    word = "off" if value is False else str(value)
    places.one_of(path, word, COMPUTE_WORDS)
    return ComputeMode.of(word)


def size_bytes(
    value: Written,
    path: str,
    places: Places,
    most_bytes: int = MAX_BYTES,
    *,
    may_be_zero: bool = False,
) -> int:
    """Returns the bytes of a size such as ``6Gi``.

    Args:
        most_bytes: that are allowed.
        may_be_zero: 0 has a meaning there.

    Raises:
        ConfigError: it is none.
    """
    try:
        return parse_size(
            value, path[2:], most_bytes, may_be_zero=may_be_zero, may_be_bare=places.was_in_force
        )
    except UsageError as error:
        raise places.error(path, error.message) from None
