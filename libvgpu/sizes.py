"""Sizes as we show them, and the bounds of one container's; reading them: `quantities`."""

#: Less than this is no slice: the smallest context takes more.
MIN_BYTES = 1 << 20
#: The ledger counts in 42 bits (libvgpu/src/slice/ledger.h).
MAX_BYTES = (1 << 42) - 1


def format_size(count: int) -> str:
    """Returns ``count`` bytes in the largest unit that needs at most two decimals."""
    for unit, scale in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            value = f"{count / scale:.2f}".rstrip("0").rstrip(".")
            return f"{value} {unit}"
    return f"{count} B"
