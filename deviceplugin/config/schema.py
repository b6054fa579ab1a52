"""The shape of the config file: NVIDIA's device-plugin config ``v1`` and what we add to it.

Only types stand here; msgspec decodes strictly after them (an unknown key or a wrong type is an
error that names its path). What the values may be, and what they mean together, is in `config`.
Keys of NVIDIA's plugin keep its spelling, so that a file written for it is accepted unchanged.
"""

from typing import Any

import msgspec

from deviceplugin.model.label_settings import DEFAULT_MACHINE_TYPE_FILE, DEFAULT_OUTPUT_FILE
from libvgpu.sizes import Written


class _Section(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A mapping of the file; unknown keys are errors."""


class PluginFlags(_Section):
    pass_device_specs: bool = False
    device_list_strategy: str | list[str] = "envvar"
    device_id_strategy: str = msgspec.field(name="deviceIDStrategy", default="uuid")
    cdi_annotation_prefix: str = ""
    nvidia_ctk_path: str = msgspec.field(name="nvidiaCTKPath", default="")
    container_driver_root: str = ""
    shared_devices_allocation_policy: str = "distributed"
    cdi_kind: str = ""
    cdi_spec_dir: str = ""


class GfdFlags(_Section):
    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval: str | int = "60s"
    output_file: str = DEFAULT_OUTPUT_FILE
    machine_type_file: str = DEFAULT_MACHINE_TYPE_FILE


class Flags(_Section):
    mig_strategy: str = "none"
    fail_on_init_error: bool = True
    mps_root: str = ""
    nvidia_driver_root: str = ""
    nvidia_dev_root: str = ""
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    use_node_feature_api: bool = msgspec.field(name="useNodeFeatureAPI", default=False)
    device_discovery_strategy: str = "auto"
    plugin: PluginFlags = msgspec.field(default_factory=PluginFlags)
    gfd: GfdFlags = msgspec.field(default_factory=GfdFlags)


class NamedPattern(_Section):
    pattern: str
    name: str


class Resources(_Section):
    gpus: list[NamedPattern] = []
    migs: list[NamedPattern] = []
    mig: list[NamedPattern] = []  # as NVIDIA's plugin spells ``migs``


class ReplicatedResource(_Section):
    name: str
    replicas: int
    rename: str = ""
    devices: str | int | list[str | int] = "all"


class Replicated(_Section):
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool | None = None
    resources: list[ReplicatedResource] = []


class TimeSlicing(Replicated):
    strategy: str = ""
    time_slice: str | None = None


class DeviceMatch(_Section):
    product: str = "*"
    min_memory: Written | None = None
    max_memory: Written | None = None
    mig: bool | str | None = None


class Fractional(_Section):
    family: str
    match: DeviceMatch | None = None
    devices: str | list[int | str] = "all"
    memory_unit: Written = "1Gi"
    compute: str | bool | None = None  # a bare off is YAML's word for false
    concurrency: str | None = None
    memory_overcommit: float = 1.0
    core_overcommit: float = 1.0
    placement: str = "binpack"
    lone_halves: str = "allow"


class Sharing(_Section):
    time_slicing: TimeSlicing | None = None
    mps: Replicated | None = None
    fractional: list[Fractional] = []


class Match(_Section):
    namespace: str = "*"
    container: str = "*"
    pod_labels: dict[str, str] = {}


class Rule(_Section):
    match: Match = msgspec.field(default_factory=Match)
    core: Written | None = None
    memory: Written | None = None
    compute: str | bool | None = None  # a bare off is YAML's word for false
    allow_raise: bool = False


class Quota(_Section):
    namespace: str
    family: str | None = None
    core: Written | None = None
    memory: Written | None = None


class Watch(_Section):
    unaccounted: str = "report"


class Labels(_Section):
    write_to: str = "auto"


class Imex(_Section):
    channel_ids: list[int] = msgspec.field(name="channelIDs", default_factory=list)
    required: bool = False


class MigLayout(_Section):
    profiles: dict[str, int]
    devices: str | list[int | str] = "all"
    match: DeviceMatch | None = None


class ConfigFile(_Section):
    version: str
    flags: Flags | None = None
    resources: Resources | None = None
    sharing: Sharing | None = None
    imex: Imex | None = None
    resource_domain: str = "nvidia.com"
    limits: list[Rule] = []
    quotas: list[Quota] = []
    mig: list[MigLayout] = []
    watch: Watch = msgspec.field(default_factory=Watch)
    labels: Labels = msgspec.field(default_factory=Labels)


def allowed_keys(path: list[str | int]) -> list[str]:
    """Returns the keys that the mapping at ``path`` may have (empty: not a section of ours)."""
    kind: Any = msgspec.inspect.type_info(ConfigFile)
    for step in path:
        options = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
        for option in options:
            if isinstance(step, int) and isinstance(option, msgspec.inspect.ListType):
                kind = option.item_type
                break
            if isinstance(step, str) and isinstance(option, msgspec.inspect.StructType):
                kind = next(f.type for f in option.fields if f.encode_name == step)
                break
        else:
            return []
    options = kind.types if isinstance(kind, msgspec.inspect.UnionType) else (kind,)
    for option in options:
        if isinstance(option, msgspec.inspect.StructType):
            return [f.encode_name for f in option.fields]
    return []
