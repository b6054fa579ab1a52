"""One program in a slice: ``tenant.py JSON``, with the fields of `Behaviour`; SIGTERM ends it.

It is made of the sample client (deploy/examples/client) and knows nothing of slices: it holds some
memory, keeps the GPU busy and rests in turns, and now and then asks for more memory than there is.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "deploy/examples/client"))

from client import PIECE_BYTES, Client, checked, cuda  # type: ignore[import-not-found]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a program does.

    Attributes:
        memory_mib: what it holds.
        busy_s: how long it computes without a pause, and
        rest_s: how long it rests then; 0: never.
        grows_every_s: how often it asks for memory until it is refused, and frees that again; 0:
            never.
        starts_s: how long it waits before all that.
    """

    memory_mib: int
    busy_s: float = 1.0
    rest_s: float = 0.0
    grows_every_s: float = 0.0
    starts_s: float = 0.0


def run(behaviour: Behaviour) -> None:
    """Does it until the process is ended."""
    time.sleep(behaviour.starts_s)
    client = Client()
    held = (behaviour.memory_mib << 20) // PIECE_BYTES
    while len(client.pieces) < held:
        client.allocate()
    grown_s = time.monotonic()
    while True:
        client.run_kernels(behaviour.busy_s)
        time.sleep(behaviour.rest_s)
        if behaviour.grows_every_s and time.monotonic() - grown_s > behaviour.grows_every_s:
            grown_s = time.monotonic()
            while int(client.allocate()) == 0:
                pass
            client.run_kernels(behaviour.busy_s)
            while len(client.pieces) > held:
                checked(cuda.cuMemFree(client.pieces.pop()))


if __name__ == "__main__":
    run(Behaviour(**json.loads(sys.argv[1])))
