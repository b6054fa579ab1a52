"""Writes the Grafana dashboards: `make fresh` does, into the chart.

Each is a list of panels below; what all have in common is added here. Queries are of the metrics in
docs/metrics-and-events.md and of the shares that the chart's rules record. With honorLabels, as the
chart's PodMonitor has it, `namespace` and `pod` are those of the container that has a slice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libvgpu.json_rows import to_rows

WIDTH, HEIGHT = 12, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
SLICE = 'namespace=~"$namespace",pod=~"$pod"'
P99 = "histogram_quantile(0.99, sum by ({}) (rate({}[5m])))"
BY_NAMESPACE = 'sum by (namespace) ({}({}{{namespace=~"$namespace"}}[{}]))'
#: What a container uses and wants is of a moment: who waits for its turns wants all or none.
LATELY = "avg_over_time({}[1m])"
#: A container may have several GPUs, and nodes have GPUs of the same index.
BY_SLICE = "{{namespace}}/{{pod}} {{container}} {{gpu}}"
BY_GPU = "{{node}} GPU {{index}}"
#: Gives sums by node and GPU the GPU's index.
INDEX = "* on (node, gpu) group_left (index) (vgpu_gpu_memory_total_bytes > bool 0)"


def short(query: str) -> str:
    """Returns a query whose GPUs have the first part of their UUIDs as names."""
    return f'label_replace({query}, "gpu", "$1", "gpu", "([A-Z]+-[^-]+)-.*")'


def of_slices(query: str, what: str = "") -> tuple[str, str]:
    """Returns a query of containers, and its legend.

    One container has one allocation at a time, and another one after a restart of its pod.
    """
    return short(f"max without (allocation) ({query})"), f"{BY_SLICE} {what}".strip()


@dataclass(frozen=True)
class Panel:
    """One graph, or a number where it is `is_stat`.

    Attributes:
        queries: each with its legend.
        unit: of Grafana's.
    """

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    is_stat: bool = False


@dataclass(frozen=True)
class Dashboard:
    """One dashboard.

    Attributes:
        variables: what is chosen on top, by the query of its values.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()


NODES = ("node", "label_values(vgpu_gpu_memory_total_bytes, node)")
GPUS = ("gpu", 'label_values(vgpu_gpu_memory_total_bytes{node=~"$node"}, gpu)')
NAMESPACES = ("namespace", "label_values(vgpu_container_memory_limit_bytes, namespace)")
PODS = ("pod", 'label_values(vgpu_container_memory_limit_bytes{namespace=~"$namespace"}, pod)')

DASHBOARDS = (
    Dashboard("cluster", "vgpu: cluster", (
        Panel("GPUs shared", (('count(vgpu_gpu_memory_total_bytes{family!="whole"})', ""),),
              is_stat=True),
        Panel("Containers with slices", (("count(vgpu_container_memory_limit_bytes)", ""),),
              is_stat=True),
        Panel("Memory given away", (("vgpu:node_memory_allocated:ratio", "{{node}}"),),
              "percentunit"),
        Panel("Compute given away", (("vgpu:node_core_allocated:ratio", "{{node}}"),),
              "percentunit"),
        Panel("Free compute that lies in pieces", (
            ("vgpu:core_fragmentation:ratio", "{{family}}"),), "percentunit"),
        Panel("Largest container that would still fit", (
            ("max by (family) (vgpu_scheduler_largest_free_memory_bytes)", "{{family}}"),),
            "bytes"),
        Panel("Pods bound, by outcome", (
            ("sum by (outcome) (rate(vgpu_scheduler_binds_total[5m]))", "{{outcome}}"),), "ops"),
        Panel("Time of a scheduler's call, p99", (
            (P99.format("le, call", "vgpu_scheduler_call_duration_seconds_bucket"), "{{call}}"),),
            "s"),
        Panel("GPUs that are unhealthy", (("count(vgpu_gpu_healthy == 0) or vector(0)", ""),),
              is_stat=True),
        Panel("Alerts", (('sum by (alertname) (ALERTS{alertname=~"Vgpu.*",alertstate="firing"})',
                          "{{alertname}}"),)),
    )),
    Dashboard("node", "vgpu: node", (
        Panel("Memory of each GPU that is given away", (
            ('vgpu_gpu_memory_allocated_bytes{node=~"$node"}', BY_GPU),), "bytes"),
        Panel("Compute of each GPU that is given away", (
            ('vgpu_gpu_core_allocated_ratio{node=~"$node"}', BY_GPU),), "percentunit"),
        Panel("Memory in use by containers", (
            ('sum by (node, gpu) (vgpu_container_memory_used_bytes{node=~"$node"})' + INDEX,
             BY_GPU),), "bytes"),
        Panel("Compute in use by containers", (
            ('sum by (node, gpu) (vgpu_container_core_used_ratio{node=~"$node"})' + INDEX,
             BY_GPU),), "percentunit"),
        Panel("Memory that belongs to no slice", (
            ('vgpu_gpu_memory_unaccounted_bytes{node=~"$node"}', BY_GPU),), "bytes"),
        Panel("Answers to Allocate, p99", (
            (P99.format("le, node", 'vgpu_allocate_duration_seconds_bucket{node=~"$node"}'),
             "{{node}}"),), "s"),
        Panel("In order (1) or not: config, podresources, Lease, driver", (
            ('vgpu_config_reload_success{node=~"$node"}', "{{node}} config"),
            ('vgpu_podresources_up{node=~"$node"}', "{{node}} podresources"),
            ('vgpu_inventory_published{node=~"$node"}', "{{node}} Lease"),
            ('vgpu_driver_up{node=~"$node"}', "{{node}} driver"))),
        Panel("Whole devices and replicas held", (
            ('vgpu_resource_devices_held{node=~"$node"}', "{{node}} {{resource}}"),)),
    ), (NODES,)),
    Dashboard("gpu", "vgpu: GPU", (
        Panel("Memory: used, given, in all", (
            ('sum(vgpu_container_memory_used_bytes{gpu=~"$gpu"})', "used"),
            ('sum(vgpu_gpu_memory_allocated_bytes{gpu=~"$gpu"})', "given"),
            ('sum(vgpu_gpu_memory_total_bytes{gpu=~"$gpu",family!="whole"})', "in all")), "bytes"),
        Panel("Share of time by container", (
            of_slices(LATELY.format('vgpu_container_core_used_ratio{gpu=~"$gpu"}')),),
            "percentunit"),
        Panel("Part of the time: free, shared, in windows", (
            ('avg by (mode) (rate(vgpu_gpu_mode_seconds_total{gpu=~"$gpu"}[5m]))', "{{mode}}"),),
            "percentunit"),
        Panel("Health", (('vgpu_gpu_healthy{gpu=~"$gpu"}', f"{BY_GPU} healthy"),
                         ('vgpu_gpu_draining{gpu=~"$gpu"}', f"{BY_GPU} draining"))),
        Panel("Memory that belongs to no slice", (
            ('vgpu_gpu_memory_unaccounted_bytes{gpu=~"$gpu"}', BY_GPU),), "bytes"),
        Panel("Processes that belong to no slice", (
            ('vgpu_gpu_foreign_processes{gpu=~"$gpu"}', BY_GPU),)),
    ), (NODES, GPUS)),
    Dashboard("namespace", "vgpu: namespace", (
        Panel("Memory: used and limit", (
            ('sum by (namespace) (vgpu_container_memory_used_bytes{namespace=~"$namespace"})',
             "{{namespace}} used"),
            ('sum by (namespace) (vgpu_container_memory_limit_bytes{namespace=~"$namespace"})',
             "{{namespace}} limit")), "bytes"),
        Panel("GPUs' worth of compute: used and limit", (
            ('sum by (namespace) (vgpu_container_core_used_ratio{namespace=~"$namespace"})',
             "{{namespace}} used"),
            ('sum by (namespace) (vgpu_container_core_limit_ratio{namespace=~"$namespace"})',
             "{{namespace}} limit"))),
        Panel("GPU time in an hour", (
            (BY_NAMESPACE.format("increase", "vgpu_container_gpu_seconds_total", "1h"),
             "{{namespace}}"),), "s"),
        Panel("Allocations refused", (
            (BY_NAMESPACE.format("rate", "vgpu_container_memory_refused_total", "5m"),
             "{{namespace}}"),), "ops"),
    ), (NAMESPACES,)),
    Dashboard("slice", "vgpu: slice", (
        Panel("Memory: used, most ever, limit", (
            of_slices(f"vgpu_container_memory_used_bytes{{{SLICE}}}", "used"),
            of_slices(f"vgpu_container_memory_peak_bytes{{{SLICE}}}", "most ever"),
            of_slices(f"vgpu_container_memory_limit_bytes{{{SLICE}}}", "limit")), "bytes"),
        Panel("Share of time: used, wanted, limit", (
            of_slices(LATELY.format(f"vgpu_container_core_used_ratio{{{SLICE}}}"), "used"),
            of_slices(LATELY.format(f"vgpu_container_core_wanted_ratio{{{SLICE}}}"), "wanted"),
            of_slices(f"vgpu_container_core_limit_ratio{{{SLICE}}}", "limit")), "percentunit"),
        Panel("Part of the time that its launches waited", (
            of_slices(f"vgpu:container_throttled:ratio5m{{{SLICE}}}"),), "percentunit"),
        Panel("Wait of delayed launches, p99", (
            of_slices(f"vgpu_container_launch_delay_p99_seconds{{{SLICE}}}"),), "s"),
        Panel("Launches", (
            of_slices(f"rate(vgpu_container_launches_total{{{SLICE}}}[5m])"),), "ops"),
        Panel("Allocations refused", (
            of_slices(f"rate(vgpu_container_memory_refused_total{{{SLICE}}}[5m])"),), "ops"),
        Panel("Memory that its books do not know", (
            of_slices(f"vgpu_container_memory_unaccounted_bytes{{{SLICE}}}"),), "bytes"),
        Panel("Windows of a contended GPU", (
            of_slices(f"rate(vgpu_container_windows_total{{{SLICE}}}[5m])"),), "ops"),
    ), (NAMESPACES, PODS)),
)  # fmt: skip


def panel_object(panel: Panel, number: int) -> dict[str, Any]:
    """Returns a panel as Grafana reads it; two stand side by side."""
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "stat" if panel.is_stat else "timeseries",
        "datasource": SOURCE,
        "gridPos": {
            "h": HEIGHT,
            "w": WIDTH,
            "x": WIDTH * (number % 2),
            "y": HEIGHT * (number // 2),
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend or "__auto",
            }
            for place, (query, legend) in enumerate(panel.queries)
        ],
    }


def variable_object(name: str, query: str) -> dict[str, Any]:
    """Returns a variable as Grafana reads it."""
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def dashboard_object(dashboard: Dashboard) -> dict[str, Any]:
    """Returns a dashboard as Grafana imports it."""
    source = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"vgpu-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["vgpu"],
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "links": [{"type": "dashboards", "title": "vgpu", "tags": ["vgpu"], "asDropdown": True}],
        "templating": {"list": [source, *(variable_object(*each) for each in dashboard.variables)]},
        "panels": [panel_object(each, n) for n, each in enumerate(dashboard.panels)],
    }


def write(directory: Path) -> None:
    """Writes all of them."""
    for each in DASHBOARDS:
        (directory / f"{each.name}.json").write_text(to_rows(dashboard_object(each)))
