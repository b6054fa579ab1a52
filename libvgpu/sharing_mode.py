"""How a GPU is shared right now, as its arbiter decided (`arbiter/policy.h`)."""

import time
from enum import StrEnum
from typing import Any

from ._native import lib

# The arbiter renews what it grants every 5 ms where several use a GPU; a shim waits ten times that.
_GONE_AFTER_NS = 1_000_000_000


class Mode(StrEnum):
    """The ways of sharing a GPU; the value is what users see.

    Attributes:
        NONE: there is no arbiter, or it has died: each container keeps to its own cap.
        FREE: at most one container uses the GPU.
        SHARED: several use it, and it is enough for what they want: all run at once.
        WINDOWS: together they want more than the GPU: they take turns.
    """

    NONE = "none"
    FREE = "free"
    SHARED = "shared"
    WINDOWS = "windows"


#: By VGPU_GRANT_*.
MODES = {
    lib.VGPU_GRANT_NONE: Mode.NONE,
    lib.VGPU_GRANT_FREE: Mode.FREE,
    lib.VGPU_GRANT_WINDOWS: Mode.WINDOWS,
    lib.VGPU_GRANT_SHARED: Mode.SHARED,
}


def granted_mode(grant: Any) -> Mode:
    """Returns the mode that a ``struct vgpu_grant`` says, as far as its arbiter still lives.

    An idle GPU has no beat, so nothing tells that the arbiter of a free one has died.
    """
    mode = MODES.get(grant.mode, Mode.NONE)
    is_old = time.monotonic_ns() - grant.beat_ns > _GONE_AFTER_NS
    return Mode.NONE if is_old and mode in (Mode.SHARED, Mode.WINDOWS) else mode
