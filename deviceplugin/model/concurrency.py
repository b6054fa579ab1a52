"""How the containers of one GPU of family vgpu run side by side."""

from enum import StrEnum


class Concurrency(StrEnum):
    """By the driver's time slices, or as clients of one MPS server.

    The latter needs no context switches, and is one fault domain. `limits` has no word of it: a
    client has a pipe directory there.
    """

    TIME_SLICES = "time-slices"
    MPS = "mps"
