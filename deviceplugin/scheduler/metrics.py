"""What the extender counts and measures, as Prometheus reads it.

Counters are filled by the threads that answer calls; what is free of the cluster is looked at when
somebody scrapes, under a lock of its own, so that scrapes do not look side by side.
"""

import threading
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from deviceplugin.http.metric_names import Family as MetricFamily
from deviceplugin.http.metric_names import MetricName
from deviceplugin.scheduler.answers.judging import Finding
from deviceplugin.scheduler.binding.binder import BindOutcome
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.fragmentation import Fragmentation, Free
from deviceplugin.serving.calls import Answer, Call
from libvgpu.limits import WHOLE_CORE_PERCENT

from . import metric_names as names

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
BOUND = "bound"


class Counts:
    """What happened; safe to use from several threads."""

    def __init__(self, calls: Iterable[str]) -> None:
        """Shows every series at zero.

        Args:
            calls: names of the calls that are measured.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]
        duration = names.CALL_DURATION
        self._duration = Histogram(
            duration.name, duration.help, duration.labels, registry=None, buckets=_BUCKETS
        )
        self._refused, self._judged, self._binds = map(
            _counter, (names.CALLS_REFUSED, names.NODES_JUDGED, names.BINDS)
        )
        for call in calls:
            self._duration.labels(call)
        for finding in Finding:
            self._judged.labels(finding)
        for outcome in (BOUND, *BindOutcome):
            self._binds.labels(outcome)

    def register(self, registry: CollectorRegistry) -> None:
        """Adds them to what is scraped."""
        for each in (self._duration, self._refused, self._judged, self._binds):
            registry.register(each)

    def judged(self, finding: Finding, count: int) -> None:
        """Counts nodes."""
        self._judged.labels(finding).inc(count)

    def bound(self, outcome: BindOutcome | None) -> None:
        """Counts one bind; None where the pod was bound."""
        self._binds.labels(BOUND if outcome is None else outcome).inc()

    def answered(self, call: str, status: int, seconds: float) -> None:
        """Counts one call.

        Args:
            call: its name; empty where it is none that is measured.
        """
        if call:
            self._duration.labels(call).observe(seconds)
        if status >= 400:
            self._refused.labels(str(status)).inc()


class ClusterCollector:
    """Looks at the cluster when it is scraped."""

    def __init__(
        self,
        cluster: Cluster,
        age_s: Callable[[], float | None],
        is_leader: Callable[[], bool],
        is_config_good: Callable[[], bool],
    ) -> None:
        """Looks at nothing yet.

        Args:
            age_s: of what is known; None where nothing ever was.
        """
        self._cluster, self._age_s = cluster, age_s
        self._is_leader, self._is_config_good = is_leader, is_config_good
        self._fragmentation = Fragmentation(cluster)
        self._lock = threading.Lock()

    def collect(self) -> Iterable[MetricFamily]:
        """Yields every family."""
        age_s = self._age_s()
        yield _single(names.ASSUMED, self._cluster.assumed_count)
        yield _single(names.NODES, len(self._cluster.nodes()))
        yield _single(names.STATE_AGE, float("inf") if age_s is None else age_s)
        yield _single(names.LEADER, self._is_leader())
        yield _single(names.CONFIG_GOOD, self._is_config_good())
        with self._lock:
            free = self._fragmentation.look()
        values: tuple[tuple[MetricName, Callable[[Free], float]], ...] = (
            (names.LARGEST_CORE, lambda each: each.largest_core / WHOLE_CORE_PERCENT),
            (names.LARGEST_MEMORY, lambda each: each.largest_memory),
            (names.MOST_EMPTY, lambda each: each.most_empty),
            (names.FREE_CORE, lambda each: each.core_ratio),
            (names.FREE_MEMORY, lambda each: each.memory),
        )
        for metric, value in values:
            family = metric.family()
            for which, each in free.items():
                family.add_metric([which.name.lower()], value(each))
            yield family

    def describe(self) -> Iterable[MetricFamily]:
        """Returns every family without series; the library knows the names by them."""
        return [metric.family() for metric in names.COLLECTED]


class MetricsPage:
    """The page ``/metrics``, in Prometheus' text format or OpenMetrics, as the scraper asks."""

    def __init__(self, counts: Counts, collector: ClusterCollector) -> None:
        """Makes it, in a registry of its own, since the library's has the process's too."""
        self._registry = CollectorRegistry()
        counts.register(self._registry)
        self._registry.register(collector)

    def page(self, call: Call) -> Answer:
        """Answers a scrape."""
        encode, kind = choose_encoder(call.headers.get("accept", ""))
        return Answer(encode(self._registry), kind=kind)


def _counter(metric: MetricName) -> Counter:
    return Counter(metric.name, metric.help, metric.labels, registry=None)


def _single(metric: MetricName, value: float) -> MetricFamily:
    family = metric.family()
    family.add_metric([], value)
    return family
