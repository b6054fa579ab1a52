"""The targets: which parsers there are of what others write, and what is linked or traced of each.

A target in C is ``c/NAME.c``, one in Python ``py/NAME.py``. Its parsers are what must be reached in
nearly every branch: whole files, or those functions of a file that read what others wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from support import ROOT

C_INCLUDES = ("libvgpu/arbiter", "libvgpu/placement")


@dataclass(frozen=True, slots=True)
class Target:
    """One of them.

    Attributes:
        what: it takes, in a phrase.
        parsers: files, each with its functions that count; none named: all do.
        linked: further files in C.
        most_bytes: of an input.
        short_runs: how many inputs `make check` tries, some ten seconds' worth.
    """

    name: str
    what: str
    parsers: Mapping[str, tuple[str, ...]]
    linked: tuple[str, ...] = ()
    most_bytes: int = 1024
    short_runs: int = 10_000
    words: tuple[str, ...] = field(default=())

    @property
    def is_c(self) -> bool:
        """Whether libFuzzer runs it by itself."""
        return (ROOT / f"tests/fuzz/c/{self.name}.c").exists()


def _slice(*names: str) -> tuple[str, ...]:
    return tuple(f"libvgpu/src/slice/{name}.c" for name in names)


def _whole(*files: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(files, ())


def _python(package: str, *names: str) -> dict[str, tuple[str, ...]]:
    return _whole(*(f"{package.replace('.', '/')}/{name}.py" for name in names))


_FILES = ("checksum", "life", "limits_file", "usage_file")
_MEASURED = "libvgpu/src/compute/measure/utilisation.c"

TARGETS = (
    Target(
        "attach",
        "damaged limits, usage and ring, as a program's shim meets them",
        {
            **dict.fromkeys(_slice("slice_files"), ("map_file", "open_limits", "open_usage")),
            **dict.fromkeys(_slice("limits_file"), ("limits_check_header", "limits_read")),
            **dict.fromkeys(_slice("usage_file"), ("usage_check_header",)),
            **dict.fromkeys(_slice("mps_limits"), ("set_pinned", "mps_limits_apply", "whole_mib")),
            _MEASURED: (),
        },
        (
            *_slice(*_FILES, "slice_files", "mps_limits", "ledger", "slot", "slot_pieces"),
            *_slice("slot_processes", "piece_heirs", "pids", "entry_notes", "locks", "waiting"),
            "libvgpu/src/driver/log.c",
            "libvgpu/src/compute/cap/virtual_time.c",
            "libvgpu/src/compute/cap/launch_queue.c",
            _MEASURED,
        ),
        short_runs=8_000,
    ),
    Target(
        "tenant",
        "the same files, as arbiter and agent read them",
        _whole("libvgpu/arbiter/tenant_files.c"),
        (*_slice(*_FILES), "libvgpu/arbiter/tenant_files.c", _MEASURED),
        short_runs=12_000,
    ),
    Target(
        "policy",
        "what tenants tell the arbiter",
        _whole(*(f"libvgpu/arbiter/{name}.c" for name in ("policy", "windows", "demand"))),
        tuple(f"libvgpu/arbiter/{name}.c" for name in ("policy", "windows", "demand")),
        most_bytes=4096,
        short_runs=10_000,
    ),
    Target(
        "placement",
        "inventories and pods in the search for places",
        _whole("libvgpu/placement/fractions.c"),
        ("libvgpu/placement/fractions.c", "-lm"),
        short_runs=40_000,
    ),
    Target(
        "json",
        "the size of a JSON text",
        _whole("libvgpu/placement/json_count.c"),
        ("libvgpu/placement/json_count.c",),
        short_runs=1_000_000,
    ),
    Target(
        "pids",
        "names and locks of processes in /proc, as the shim reads them",
        _whole(*_slice("pids")),
        most_bytes=8192,
        words=("\\x0aNSpid:", "lock:", "OFDLCK", ") R 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 99"),
        short_runs=150_000,
    ),
    Target(
        "config",
        "config files, and flags over them",
        {
            "libvgpu/yamltext.py": ("parse", "_Builder", "_Open"),
            "libvgpu/sizes.py": ("parse_size", "parse_percent", "_text", "_likely"),
            "deviceplugin/config/loading.py": (
                "parse_config", "checked_file", "_refused", "_expected", "_rule", "is_domain",
            ),
            **_python("deviceplugin.config", "plain_data", "fractional", "whole_devices", "flags",
                      "values", "quotas", "mig_layouts", "label_settings", "durations"),
        },
        most_bytes=4096,
        words=("version: v1", "sharing:", "- ", "&a", "*a", "<<: *a", "!!int ", "---", "!!binary"),
        short_runs=8_000,
    ),
    Target(
        "store",
        "checkpoint and journal, kept config, learnt sizes, kept Events",
        {
            "deviceplugin/store/journal.py": (),
            "deviceplugin/store/checkpoint.py": ("Checkpoint.load", "Checkpoint._put_aside"),
            "deviceplugin/store/kept_config.py": ("KeptConfig.load", "_decode", "_record"),
            "deviceplugin/store/learnt_sizes_file.py": ("_load", "_sizes"),
            "deviceplugin/store/event_file.py": ("kept_events",),
        },
        words=("version", "snapshot", "allocations", "put", "drop"),
        most_bytes=4096,
        short_runs=10_000,
    ),
    Target(
        "kubelet",
        "requests of the device manager, podresources, the Pods API, the kubelet's checkpoint",
        {
            "deviceplugin/kubelet/handlers.py": ("_decode",),
            "deviceplugin/kubelet/answer_codec.py": (),
            "deviceplugin/kubelet/podresources.py": ("listed_in",),
            "deviceplugin/kubelet/pods_api.py": ("_pod", "_container"),
            "deviceplugin/recovery/kubelet_checkpoint.py": (
                "registered_devices", "KubeletCheckpoint._entries", "KubeletCheckpoint._read",
                "_units",
            ),
        },
        words=("nvidia.com/vgpu-core", "nvidia.com/gpu", "Data", "PodDeviceEntries"),
        most_bytes=4096,
        short_runs=40_000,
    ),
    Target(
        "extender",
        "calls of kube-scheduler and Volcano",
        {
            **_python("deviceplugin.scheduler.wire", "kube_scheduler", "volcano_calls", "go_json"),
        },
        most_bytes=4096,
        short_runs=4_000,
    ),
    Target(
        "inventory",
        "what agents publish, and their pages",
        {
            "deviceplugin/pages/published.py": ("decode",),
            "deviceplugin/pages/slices.py": ("read_page",),
            "deviceplugin/scheduler/search/node_view.py": (),
            "deviceplugin/scheduler/search/fractions.py": ("laid_out",),
        },
        most_bytes=4096,
        short_runs=4_000,
    ),
    Target(
        "webhook",
        "reviews of pods",
        _python("deviceplugin.webhook", "review", "pod_patch"),
        short_runs=50_000,
    ),
    Target(
        "pods",
        "pods: amounts, annotations, and the stream that they come in",
        {
            **_python("deviceplugin.kube", "pod_wire", "quantity", "watch_stream"),
            "deviceplugin/model/chosen_gpus.py": (),
            "deviceplugin/scheduler/search/wishes.py": (),
        },
        short_runs=30_000,
    ),
    Target(
        "http",
        "connections: heads and bodies of calls",
        {
            "deviceplugin/serving/call_body.py": ("declared_length", "Body", "_check"),
            "deviceplugin/serving/call_handler.py": (),
            "deviceplugin/serving/timed_streams.py": (),
        },
        most_bytes=4096,
        words=("POST /pods HTTP/1.1\\x0d\\x0a", "Content-Length: 3", "Transfer-Encoding: chunked",
               "\\x0d\\x0a\\x0d\\x0a", "Expect: 100-continue"),
    ),
    Target(
        "mps",
        "answers of an MPS control daemon, its logs and the runner's files",
        {
            "deviceplugin/mps/control_pipe.py": ("ask", "_check_no_link", "is_ready"),
            "deviceplugin/mps/client_faults.py": (),
            "deviceplugin/mps/state_files.py": ("read_wanted", "read_state", "_read"),
            "deviceplugin/mps/daemon.py": (
                "Daemon.why_silent", "Daemon.find_server", "Daemon._pid_in_file",
                "Daemon._stranger", "Daemon.settle", "Daemon.changed_settings",
            ),
            "deviceplugin/mps/processes.py": ("parent_of",),
        },
        short_runs=6_000,
    ),
    Target(
        "ledger",
        "usage and limits as the agent's Python reads them",
        {
            "libvgpu/usage.py": (
                "read_usage", "_decode", "_process", "_pieces", "_device", "_total", "_life",
                "_entry_name", "text_of", "piece_bytes",
            ),
            "libvgpu/ledger_view.py": (
                "read_ledger", "_let_go_bytes", "damage", "_block_bytes", "_context_bytes",
                "_beginning",
            ),
            "libvgpu/region.py": ("usage_bytes", "read_limits", "_read", "_device"),
        },
        short_runs=4_000,
    ),
    Target(
        "proc",
        "names, files, mounts and cgroups of processes in /proc",
        {
            "deviceplugin/watch/procfs.py": (
                "read_process", "read_mounts", "_mounts", "read_mapped_files", "container_members",
                "_stat", "_parsed", "_thread", "_plain",
            ),
            "deviceplugin/watch/cgroups.py": (),
            "deviceplugin/cleaning/mounts.py": ("read_mounts",),
        },
        short_runs=4_000,
    ),
    Target(
        "words",
        "simulated machines, MIG layouts and sizes as users type them",
        {
            "libvgpu/sim/spec.py": (),
            "libvgpu/sim/mig.py": ("parse_layout",),
            "libvgpu/sizes.py": (),
        },
        short_runs=50_000,
    ),
)  # fmt: skip
BY_NAME = {target.name: target for target in TARGETS}
