"""Metrics of the MPS daemons, from what their runner says of them."""

from collections.abc import Iterable, Mapping

from deviceplugin.mps.state_files import READY, GpuMps

from .metric_names import MPS, Family


def mps_families(states: Mapping[str, GpuMps]) -> Iterable[Family]:
    """Returns the families, with a series for every GPU that is under MPS or is being put back."""
    families = ready, restarts, faults, restored = [metric.family() for metric in MPS]
    for uuid, state in sorted(states.items()):
        ready.add_metric([uuid], state.phase == READY)
        restarts.add_metric([uuid], state.restarts)
        faults.add_metric([uuid], state.faults)
        restored.add_metric([uuid], state.restored)
    return families
