"""How large a pod would still fit, and how that is shown."""

from deviceplugin.http.calls import Call
from deviceplugin.scheduler.answers.judging import Finding
from deviceplugin.scheduler.binding.binder import BindOutcome
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.cluster.fragmentation import Fragmentation, Free
from deviceplugin.scheduler.metric_names import METRICS
from deviceplugin.scheduler.metrics import ClusterCollector, Counts, MetricsPage
from libvgpu.limits import Family
from support.scheduler.values import first_fit, gpu, held_slice, published

GIB = 1 << 30


def cluster() -> Cluster:
    found = Cluster(first_fit)
    found.set_nodes(
        {
            "n1": published(held_slice("a", "a", 60, 10, 0), held_slice("b", "b", 60, 50, 1)),
            "n2": published(
                held_slice("c", "c", 90, 80, node="n2"),
                gpus=[gpu(0, node="n2"), gpu(1, node="n2", unhealthy="XID 79")],
                node="n2",
            ),
        }
    )
    return found


def test_the_largest_rest_and_the_sum_are_told_apart() -> None:
    free = Fragmentation(cluster()).look()

    assert free == {Family.VGPU: Free(40, 70 * GIB, 0, 90, 100 * GIB)}


def test_a_node_that_changes_is_looked_at_again_and_one_that_goes_is_not() -> None:
    state = cluster()
    fragmentation = Fragmentation(state)
    fragmentation.look()

    state.set_node("n1", published())
    state.set_node("n2", None)

    assert fragmentation.look() == {Family.VGPU: Free(100, 80 * GIB, 2, 200, 160 * GIB)}


def test_a_family_with_nothing_free_is_shown_at_zero() -> None:
    state = Cluster(first_fit)
    state.set_node("n1", published(gpus=[gpu(0, unhealthy="gone")]))

    assert Fragmentation(state).look() == {Family.VGPU: Free()}


def test_the_page_has_every_metric_and_no_other() -> None:
    counts = Counts(["filter"])
    collector = ClusterCollector(cluster(), lambda: None, lambda: True, lambda: False)
    page = MetricsPage(counts, collector)
    counts.judged(Finding.NO_ROOM, 3)
    counts.bound(None)
    counts.bound(BindOutcome.CONFLICT)
    counts.answered("filter", 200, 0.003)
    counts.answered("filter", 400, 0.001)
    counts.answered("", 404, 0.001)

    answer = page.page(Call("/metrics"))
    lines = answer.body.decode().splitlines()

    named = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    assert named == {metric.name for metric in METRICS}
    assert answer.kind.startswith("text/plain")
    for line in (
        'vgpu_scheduler_nodes_judged_total{finding="no-room"} 3.0',
        'vgpu_scheduler_nodes_judged_total{finding="fits"} 0.0',
        'vgpu_scheduler_binds_total{outcome="bound"} 1.0',
        'vgpu_scheduler_binds_total{outcome="conflict"} 1.0',
        'vgpu_scheduler_call_duration_seconds_count{call="filter"} 2.0',
        'vgpu_scheduler_calls_refused_total{status="400"} 1.0',
        'vgpu_scheduler_calls_refused_total{status="404"} 1.0',
        "vgpu_scheduler_nodes 2.0",
        "vgpu_scheduler_state_age_seconds +Inf",
        "vgpu_scheduler_leader 1.0",
        "vgpu_scheduler_config_reload_success 0.0",
        'vgpu_scheduler_largest_free_core_ratio{family="vgpu"} 0.4',
        'vgpu_scheduler_free_core_ratio{family="vgpu"} 0.9',
    ):
        assert line in lines, line
    other = page.page(Call("/metrics", headers={"accept": "application/openmetrics-text"}))
    assert other.kind.startswith("application/openmetrics-text")
