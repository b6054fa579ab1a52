"""Metrics in Prometheus' text format (version 0.0.4), and nothing more of Prometheus.

The usual client library brings an HTTP server, TLS and half a dozen formats: 9 MiB of an agent that
may take 60. The names and arguments here are the library's, so that its users find their way.

A family is filled by one thread and then rendered; `Histogram` takes its own lock.
"""

import math
import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Family:
    """One metric with a series per combination of labels."""

    kind = "untyped"

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: Sequence[str] = (),
        value: float | None = None,
    ) -> None:
        """Makes a family without series, or with the one that ``value`` is for."""
        self.name, self.documentation = name, documentation
        self._labels = tuple(labels)
        self._lines: list[str] = []
        if value is not None:
            self.add_metric((), value)

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        """Adds a series.

        Args:
            labels: their values, in the order of their names.
            value: at the time of the scrape.
        """
        pairs = zip(self._labels, labels, strict=True)
        self._lines.append(_sample(self.name, pairs, value))

    def render(self) -> str:
        """Returns the family as text."""
        return _head(self.name, self.documentation, self.kind) + "".join(self._lines)


class GaugeMetricFamily(Family):
    """A value that goes up and down."""

    kind = "gauge"


class CounterMetricFamily(Family):
    """A value that only rises; its name ends in ``_total``."""

    kind = "counter"


class Histogram:
    """How often observed values fell below each of some bounds, per value of one label."""

    def __init__(self, name: str, documentation: str, label: str, buckets: Sequence[float]) -> None:
        """Makes a histogram without series.

        Args:
            label: its one label.
            buckets: upper bounds, rising; one without bound is added.
        """
        self.name, self.documentation = name, documentation
        self._label = label
        self._bounds = (*buckets, math.inf)
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def prepare(self, label: str) -> None:
        """Shows a series from now on, at zero."""
        with self._lock:
            self._counts.setdefault(label, [0] * len(self._bounds))
            self._sums.setdefault(label, 0.0)

    def observe(self, label: str, value: float) -> None:
        """Counts a value."""
        self.prepare(label)
        with self._lock:
            self._counts[label][bisect_left(self._bounds, value)] += 1
            self._sums[label] += value

    def render(self) -> str:
        """Returns all series as text."""
        with self._lock:
            counts = {label: list(row) for label, row in self._counts.items()}
            sums = dict(self._sums)
        lines = []
        for label, row in counts.items():
            pair, below = (self._label, label), 0
            for bound, count in zip(self._bounds, row, strict=True):
                below += count
                pairs = [pair, ("le", _number(bound))]
                lines.append(_sample(f"{self.name}_bucket", pairs, below))
            lines.append(_sample(f"{self.name}_count", [pair], below))
            lines.append(_sample(f"{self.name}_sum", [pair], sums[label]))
        return _head(self.name, self.documentation, "histogram") + "".join(lines)


def render(families: Iterable[Family | Histogram]) -> bytes:
    """Returns a whole page."""
    return "".join(family.render() for family in families).encode()


def _head(name: str, documentation: str, kind: str) -> str:
    text = documentation.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    text = ",".join(f'{key}="{_escaped(each)}"' for key, each in sorted(labels))
    return f"{name}{{{text}}} {_number(value)}\n" if text else f"{name} {_number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    value = float(value)
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
