"""Which GPUs a scheduler chose for the containers of a pod: the pod's annotation, as a value.

The scheduler's extender writes it together with the binding, the node agent reads it. It decides
between GPUs that the container may have, and gives nobody more: whoever writes one by hand has
chosen among the GPUs of a node, and no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from libvgpu.decoding import json_decoder

#: Behind the resource domain and a slash.
CHOSEN_GPUS_KEY = "vgpu.gpus"
#: Larger ones are nobody's: a pod with 20 containers of 16 GPUs each has 14 KB.
_MOST_BYTES = 32 << 10


@dataclass(frozen=True, slots=True)
class ChosenGpus:
    """The choice.

    Attributes:
        node: for which it was made; on another it means nothing.
        containers: UUIDs of the GPUs or MIG devices of each container's fraction, by its name.
    """

    node: str
    containers: Mapping[str, tuple[str, ...]]

    def encoded(self) -> str:
        """Returns the annotation's value."""
        return msgspec.json.encode(self, order="sorted").decode()


_CHOSEN = json_decoder(ChosenGpus)


def chosen_gpus(value: str) -> ChosenGpus | None:
    """Returns what an annotation says, None where it is none of ours."""
    if len(value) > _MOST_BYTES:
        return None
    try:
        return _CHOSEN.decode(value)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None
