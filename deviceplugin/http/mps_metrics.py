"""Metrics of the MPS daemons, from what their runner says of them."""

from collections.abc import Iterable, Mapping

from deviceplugin.mps.state_files import READY, GpuMps

from .exposition import CounterMetricFamily, Family, GaugeMetricFamily

_LABELS = ("gpu",)


def mps_families(states: Mapping[str, GpuMps]) -> Iterable[Family]:
    """Returns the families, with a series for every GPU that is under MPS or is being put back."""
    ready = GaugeMetricFamily("vgpu_mps_ready", "1 if MPS serves the GPU", labels=_LABELS)
    restarts = CounterMetricFamily(
        "vgpu_mps_restarts_total",
        "How often MPS ended by itself and was started again",
        labels=_LABELS,
    )
    restored = CounterMetricFamily(
        "vgpu_mps_settings_restored_total",
        "How often changed settings of MPS were put back",
        labels=_LABELS,
    )
    for uuid, state in sorted(states.items()):
        ready.add_metric([uuid], state.phase == READY)
        restarts.add_metric([uuid], state.restarts)
        restored.add_metric([uuid], state.restored)
    return ready, restarts, restored
