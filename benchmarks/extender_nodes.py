"""A simulated cluster of many light nodes, as the figures of the extender need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .figure import Measurement
from .simulated_cluster.api_server import SimulatedApiServer
from .simulated_cluster.light_nodes import LightNodes

EXTENDER, DEFAULT = "extender", "default scheduler"
NAMESPACE = "vgpu-system"
GPUS = 8


@contextmanager
def cluster_of(
    base: Path, nodes: int, occupied: float, seed: int
) -> Iterator[tuple[SimulatedApiServer, LightNodes]]:
    """Gives an API server and nodes that publish and take what is bound to them.

    Args:
        occupied: the part of the GPUs that have slices already.

    Raises:
        VgpuError: openssl is not installed.
    """
    with SimulatedApiServer(base, NAMESPACE) as server:
        light = LightNodes(server.store, NAMESPACE, nodes, GPUS, seed, occupied)
        light.start()
        try:
            yield server, light
        finally:
            light.stop()


def one(
    case: str, quantity: str, unit: str, value: float, note: str = "", *,
    least: float | None = None, most: float | None = None, subject: str = EXTENDER,
) -> Measurement:  # fmt: skip
    """Returns one number and its bar."""
    value = round(value, 3)
    return Measurement(
        case, subject, quantity, unit, value, value, value, note, least=least, most=most
    )
