"""Every metric that the agent exports: name, kind, help and labels, in one table.

The collectors fill these rows and no others, so what is listed here is all there is.
"""

from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Family = GaugeMetricFamily | CounterMetricFamily


@dataclass(frozen=True, slots=True)
class MetricName:
    """One metric; a counter's name ends in ``_total``."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    def family(self) -> Family:
        """Returns the metric without series; a histogram has none, since the library keeps it."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        return kind(self.name, self.help, labels=self.labels)


_CONTAINER_LABELS = ("namespace", "pod", "container", "allocation", "gpu", "family")
_GPU_LABELS = ("gpu", "index", "family")
_MPS_LABELS = ("gpu",)


def _container(name: str, kind: Literal["gauge", "counter"], help: str) -> MetricName:
    return MetricName(name, kind, help, _CONTAINER_LABELS)


def _gpu(name: str, help: str) -> MetricName:
    return MetricName(name, "gauge", help, _GPU_LABELS)


#: In the order in which `metrics` gathers their values.
CONTAINER = (
    _container(
        "vgpu_container_memory_used_bytes", "gauge", "GPU memory that the container has allocated"
    ),
    _container(
        "vgpu_container_memory_limit_bytes", "gauge", "GPU memory that the container may allocate"
    ),
    _container(
        "vgpu_container_memory_peak_bytes",
        "gauge",
        "Most GPU memory that the container ever had allocated",
    ),
    _container(
        "vgpu_container_core_limit_ratio",
        "gauge",
        "Part of the GPU's compute time that the container may use",
    ),
    _container(
        "vgpu_container_throttled_seconds_total",
        "counter",
        "Time for which the container's launches were delayed",
    ),
    _container(
        "vgpu_container_launches_total", "counter", "Kernels and graphs that the container launched"
    ),
    _container(
        "vgpu_container_windows_total",
        "counter",
        "Windows of a contended GPU in which the container launched something",
    ),
    _container(
        "vgpu_container_core_used_ratio",
        "gauge",
        "Part of the GPU's time that the container used recently",
    ),
    _container(
        "vgpu_container_core_wanted_ratio",
        "gauge",
        "Part of the GPU's time that the container wants at most, by its arbiter; "
        "0 while it is idle or has none",
    ),
    _container(
        "vgpu_container_launch_delay_p99_seconds",
        "gauge",
        "99th percentile of the time that delayed launches waited, to within a factor of two",
    ),
    _container(
        "vgpu_container_memory_refused_total",
        "counter",
        "Memory allocations refused because of the limit",
    ),
    _container(
        "vgpu_container_usage_readable", "gauge", "1 if the container's usage file can be read"
    ),
    _container(
        "vgpu_container_memory_unaccounted_bytes",
        "gauge",
        "GPU memory in steady use that the container's ledger does not account for, "
        "charged to the container",
    ),
    _container(
        "vgpu_container_bypassing_processes",
        "gauge",
        "Processes of the container that use the GPU without the shim",
    ),
    _container(
        "vgpu_container_usage_damaged",
        "gauge",
        "1 if the container has made its usage file unreadable",
    ),
    _container(
        "vgpu_container_gpu_time_forged",
        "gauge",
        "1 if the container takes more of the GPU than its usage file says",
    ),
    _container(
        "vgpu_container_usage_restored_total",
        "counter",
        "Times the agent gave the container's usage file its size again",
    ),
)
CONTAINER_GPU_SECONDS = MetricName(
    "vgpu_container_gpu_seconds_total",
    "counter",
    "GPU time that the container used",
    (*_CONTAINER_LABELS, "estimated"),
)
#: In the order in which `gpu_metrics` gathers their values.
GPU = (
    _gpu("vgpu_gpu_memory_total_bytes", "Memory of the GPU"),
    _gpu("vgpu_gpu_memory_allocated_bytes", "Memory of the GPU that is given to containers"),
    _gpu("vgpu_gpu_core_allocated_ratio", "Part of the GPU's compute that is given to containers"),
    _gpu("vgpu_gpu_draining", "1 if the GPU's sharing changes as soon as its slices have ended"),
    _gpu(
        "vgpu_gpu_memory_unaccounted_bytes",
        "GPU memory in steady use that no container's ledger accounts for",
    ),
    _gpu("vgpu_gpu_foreign_processes", "Processes on the GPU that belong to no allocation"),
    _gpu("vgpu_gpu_healthy", "1 if the GPU is healthy"),
)
GPUS_LEFT_OUT = MetricName(
    "vgpu_gpus_left_out",
    "gauge",
    "GPUs and MIG devices that NVML fails for and that have no series, since they were not offered",
)
DRIVER_UP = MetricName("vgpu_driver_up", "gauge", "1 if the NVIDIA driver lists the GPUs")
GPU_MODE_SECONDS = MetricName(
    "vgpu_gpu_mode_seconds_total",
    "counter",
    "Time for which the GPU was shared in this mode, since its arbiter was started",
    ("gpu", "mode"),
)
#: In the order in which `mps_metrics` gathers their values.
MPS = (
    MetricName("vgpu_mps_ready", "gauge", "1 if MPS serves the GPU", _MPS_LABELS),
    MetricName(
        "vgpu_mps_restarts_total",
        "counter",
        "Times that the GPU's MPS daemon ended by itself and was started again",
        _MPS_LABELS,
    ),
    MetricName(
        "vgpu_mps_client_faults_total",
        "counter",
        "Times that a fault of one MPS client ended the work of all clients of the GPU",
        _MPS_LABELS,
    ),
    MetricName(
        "vgpu_mps_settings_restored_total",
        "counter",
        "Times that settings of the GPU's MPS daemon had been changed and were put back",
        _MPS_LABELS,
    ),
)
CONFIG_RELOAD_SUCCESS = MetricName(
    "vgpu_config_reload_success", "gauge", "1 if the present content of the config file is in force"
)
CONFIG_HASH = MetricName(
    "vgpu_config_hash", "gauge", "Hash of the config that is in force, as a number"
)
PODRESOURCES_UP = MetricName(
    "vgpu_podresources_up", "gauge", "0 if the kubelet's podresources has not answered for long"
)
INVENTORY_PUBLISHED = MetricName(
    "vgpu_inventory_published", "gauge", "0 if the node's inventory as it is now is not published"
)
PODS_FOLLOWED = MetricName(
    "vgpu_pods_followed", "gauge", "1 if the agent knows what the pods of its node ask for"
)
WATCH_UP = MetricName(
    "vgpu_watch_up", "gauge", "1 if the agent can see the processes on the node's GPUs"
)
WATCH_PROCESSES_KILLED = MetricName(
    "vgpu_watch_processes_killed_total",
    "counter",
    "Processes that the agent killed because they used a GPU without the shim",
)
RESOURCE_REGISTERED = MetricName(
    "vgpu_resource_registered",
    "gauge",
    "1 if the resource is registered with the kubelet, which listens to its devices",
    ("resource",),
)
RESOURCE_DEVICES = MetricName(
    "vgpu_resource_devices",
    "gauge",
    "Devices or replicas that a resource of whole devices has",
    ("resource",),
)
RESOURCE_DEVICES_HELD = MetricName(
    "vgpu_resource_devices_held",
    "gauge",
    "Devices or replicas of a resource that containers hold",
    ("resource",),
)
GPU_WITHHELD = MetricName(
    "vgpu_gpu_withheld",
    "gauge",
    "1 for a GPU or MIG device of which nothing is offered by configuration",
    ("gpu",),
)
ALLOCATE_DURATION = MetricName(
    "vgpu_allocate_duration_seconds",
    "histogram",
    "Time that the agent took to answer Allocate",
    ("resource",),
)

#: What `metrics.NodeCollector` fills.
COLLECTED = (
    *CONTAINER,
    CONTAINER_GPU_SECONDS,
    *GPU,
    GPUS_LEFT_OUT,
    DRIVER_UP,
    GPU_MODE_SECONDS,
    *MPS,
    CONFIG_RELOAD_SUCCESS,
    CONFIG_HASH,
    PODRESOURCES_UP,
    INVENTORY_PUBLISHED,
    PODS_FOLLOWED,
    WATCH_UP,
    WATCH_PROCESSES_KILLED,
    RESOURCE_REGISTERED,
    RESOURCE_DEVICES,
    RESOURCE_DEVICES_HELD,
    GPU_WITHHELD,
)
#: All metrics of the agent.
METRICS = (*COLLECTED, ALLOCATE_DURATION)
