"""The metrics page says what Prometheus' own reader understands, whatever labels hold."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.http.exposition import (
    CounterMetricFamily,
    Family,
    GaugeMetricFamily,
    Histogram,
    render,
)

AWKWARD = 'back\\slash "quoted"\nnext line, ünï'
BOUNDS = (0.001, 0.01, 1.0)


def read(*families: Family | Histogram) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    page = render(families).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def labels(**values: str) -> frozenset[tuple[str, str]]:
    return frozenset(values.items())


def test_gauges_and_counters_come_back_with_type_help_and_labels() -> None:
    gauge = GaugeMetricFamily("vgpu_used_bytes", "Bytes\nin use", labels=("pod", "gpu"))
    gauge.add_metric([AWKWARD, "GPU-0"], 1 << 40)
    gauge.add_metric(["b", "GPU-1"], 0)
    counter = CounterMetricFamily("vgpu_refused_total", "Refusals", labels=("pod",))
    counter.add_metric(["b"], 3)

    found = {f.name: f for f in text_string_to_metric_families(render([gauge, counter]).decode())}

    assert found["vgpu_used_bytes"].type == "gauge"
    assert found["vgpu_used_bytes"].documentation == "Bytes\nin use"
    assert found["vgpu_refused"].type == "counter"  # the reader takes _total off
    assert read(gauge, counter) == {
        ("vgpu_used_bytes", labels(pod=AWKWARD, gpu="GPU-0")): float(1 << 40),
        ("vgpu_used_bytes", labels(pod="b", gpu="GPU-1")): 0.0,
        ("vgpu_refused_total", labels(pod="b")): 3.0,
    }


def test_a_value_without_labels_has_no_braces() -> None:
    page = render([GaugeMetricFamily("vgpu_good", "1 if good", value=1)]).decode()

    assert page == "# HELP vgpu_good 1 if good\n# TYPE vgpu_good gauge\nvgpu_good 1.0\n"


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-9, 2**53])
def test_any_number_comes_back(value: float) -> None:
    assert list(read(GaugeMetricFamily("x", "x", value=value)).values()) == [value]


def test_too_few_labels_are_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="argument"):
        GaugeMetricFamily("x", "x", labels=("a", "b")).add_metric(["only one"], 1)


def test_a_histogram_counts_each_value_in_every_bucket_above_it() -> None:
    histogram = Histogram("vgpu_seconds", "Seconds", "resource", BOUNDS)
    histogram.prepare("idle")
    for seconds in (0.0005, 0.001, 0.5, 7.0):
        histogram.observe("busy", seconds)

    found = read(histogram)

    below = {
        bound: found["vgpu_seconds_bucket", labels(resource="busy", le=bound)]
        for bound in ("0.001", "0.01", "1.0", "+Inf")
    }
    assert below == {"0.001": 2, "0.01": 2, "1.0": 3, "+Inf": 4}
    assert found["vgpu_seconds_count", labels(resource="busy")] == 4
    assert found["vgpu_seconds_sum", labels(resource="busy")] == pytest.approx(7.5015)
    assert found["vgpu_seconds_count", labels(resource="idle")] == 0
    assert found["vgpu_seconds_bucket", labels(resource="idle", le="+Inf")] == 0
