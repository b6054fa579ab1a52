"""Every metric that the extender exports, in one table; the agent's are in `http.metric_names`."""

from deviceplugin.http.metric_names import MetricName

CALL_DURATION = MetricName(
    "vgpu_scheduler_call_duration_seconds",
    "histogram",
    "Time that the extender took to answer a scheduler's call",
    ("call",),
)
CALLS_REFUSED = MetricName(
    "vgpu_scheduler_calls_refused_total",
    "counter",
    "Calls that were not answered, by HTTP status",
    ("status",),
)
NODES_JUDGED = MetricName(
    "vgpu_scheduler_nodes_judged_total",
    "counter",
    "Nodes that filter was asked about, by what was found",
    ("finding",),
)
BINDS = MetricName(
    "vgpu_scheduler_binds_total",
    "counter",
    "Pods that were to be bound, by what became of it",
    ("outcome",),
)
ASSUMED = MetricName(
    "vgpu_scheduler_assumed_pods",
    "gauge",
    "Pods that are being bound and that the API server has not told of yet",
)
NODES = MetricName("vgpu_scheduler_nodes", "gauge", "Nodes whose inventory is known")
STATE_AGE = MetricName(
    "vgpu_scheduler_state_age_seconds",
    "gauge",
    "Age of what is known of nodes and pods; infinite before anything is known",
)
LEADER = MetricName("vgpu_scheduler_leader", "gauge", "1 if this replica binds pods")
CONFIG_GOOD = MetricName(
    "vgpu_scheduler_config_reload_success",
    "gauge",
    "1 if the quotas of the config file's present content are in force",
)
LARGEST_CORE = MetricName(
    "vgpu_scheduler_largest_free_core_ratio",
    "gauge",
    "Compute that the largest container could have on one GPU, 1 is a whole GPU",
    ("family",),
)
LARGEST_MEMORY = MetricName(
    "vgpu_scheduler_largest_free_memory_bytes",
    "gauge",
    "Memory that the largest container could have on one GPU",
    ("family",),
)
MOST_EMPTY = MetricName(
    "vgpu_scheduler_most_empty_gpus",
    "gauge",
    "GPUs that are completely free, on the node with most of them",
    ("family",),
)
FREE_CORE = MetricName(
    "vgpu_scheduler_free_core_ratio",
    "gauge",
    "Compute that is free on all GPUs together, 1 is a whole GPU",
    ("family",),
)
FREE_MEMORY = MetricName(
    "vgpu_scheduler_free_memory_bytes", "gauge", "Memory that is free on all GPUs", ("family",)
)

#: What `metrics.ClusterCollector` fills.
COLLECTED = (
    ASSUMED,
    NODES,
    STATE_AGE,
    LEADER,
    CONFIG_GOOD,
    LARGEST_CORE,
    LARGEST_MEMORY,
    MOST_EMPTY,
    FREE_CORE,
    FREE_MEMORY,
)
#: All metrics of the extender.
METRICS = (CALL_DURATION, CALLS_REFUSED, NODES_JUDGED, BINDS, *COLLECTED)
