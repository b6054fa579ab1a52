"""All labels of the node, from values. Pure."""

from collections.abc import Sequence

from deviceplugin.model.gpus import Gpu

from .free_labels import free_labels
from .gpu_labels import gpu_labels
from .offered import Machine, Offered
from .resource_labels import PREFIX


def node_labels(
    gpus: Sequence[Gpu], offered: Offered, machine: Machine, since_epoch_s: int | None = None
) -> dict[str, str]:
    """Returns the labels of the node, by key.

    Args:
        gpus: all of the node, those in MIG mode with their MIG devices.
        since_epoch_s: since when labels are written; None where they are not to say so.
    """
    labels = gpu_labels(gpus, offered, machine) | free_labels(offered)
    if since_epoch_s is not None:
        labels[f"{PREFIX}gfd.timestamp"] = str(since_epoch_s)
    return labels
