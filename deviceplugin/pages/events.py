"""What the page ``/v1/events`` and the file behind it say: what the agent told pods and Node."""

import msgspec

from libvgpu.decoding import json_decoder


class KeptEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event.

    Attributes:
        at: seconds since the epoch.
        reason: as Kubernetes shows it.
        is_warning: somebody has to do something about it, or has lost something.
        subject: NAMESPACE/POD/CONTAINER; empty where it concerns the node.
        left_out: equal ones since the line before of the same content.
    """

    at: float
    reason: str
    text: str
    is_warning: bool = False
    subject: str = ""
    left_out: int = 0


#: The page is a list with the oldest first; the file has one on each line.
EVENTS, EVENT = json_decoder(list[KeptEvent]), json_decoder(KeptEvent)
