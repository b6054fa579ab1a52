"""A number with its noun, for messages."""


def counted(number: int, noun: str) -> str:
    """Returns ``1 slice``, or ``2 slices``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
