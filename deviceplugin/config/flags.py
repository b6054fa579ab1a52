"""The ``flags`` of the config file, which are those of NVIDIA's device plugin.

Pure. Most of them become `DeviceForms`.
"""

from pathlib import PurePosixPath

from deviceplugin.model.device_forms import (
    DEFAULT_ANNOTATION_PREFIX,
    DEFAULT_CDI_KIND,
    DEFAULT_CDI_SPEC_DIR,
    IMEX_CHANNELS,
    DeviceForms,
    Feature,
    IdStrategy,
    ListStrategy,
    is_annotation_prefix,
    is_cdi_kind,
)
from libvgpu.places import Places

from . import schema
from .mps_root import check_mps_root

_PLUGIN = "$.flags.plugin"
DISCOVERY = ("auto", "nvml")  # Tegra and VFIO have no NVML to ask


def device_forms(flags: schema.Flags, imex: schema.Imex | None, places: Places) -> DeviceForms:
    """Returns how containers are told which GPUs are theirs.

    Args:
        imex: channels that every container with a GPU gets, too.

    Raises:
        ConfigError: a value that is not allowed.
    """
    plugin = flags.plugin
    places.one_of(f"{_PLUGIN}.deviceIDStrategy", plugin.device_id_strategy, IdStrategy)
    prefix = plugin.cdi_annotation_prefix or DEFAULT_ANNOTATION_PREFIX
    if not is_annotation_prefix(prefix):
        raise places.error(
            f"{_PLUGIN}.cdiAnnotationPrefix",
            f"flags.plugin.cdiAnnotationPrefix {prefix!r} cannot begin an annotation's key; give a "
            f"domain name and a slash, such as {DEFAULT_ANNOTATION_PREFIX}",
        )
    kind = plugin.cdi_kind or DEFAULT_CDI_KIND
    if not is_cdi_kind(kind):
        raise places.error(
            f"{_PLUGIN}.cdiKind",
            f"flags.plugin.cdiKind {kind!r} is not a kind of CDI; give vendor and class, such as "
            f"nvidia.com/gpu or {DEFAULT_CDI_KIND}",
        )
    for path, root in (
        ("flags.nvidiaDriverRoot", flags.nvidia_driver_root),
        ("flags.nvidiaDevRoot", flags.nvidia_dev_root),
        ("flags.plugin.containerDriverRoot", plugin.container_driver_root),
        ("flags.plugin.nvidiaCTKPath", plugin.nvidia_ctk_path),
        ("flags.plugin.cdiSpecDir", plugin.cdi_spec_dir),
    ):
        if root and not root.startswith("/"):
            raise places.error(f"$.{path}", f"{path} {root!r} is not an absolute path")
    return DeviceForms(
        lists=_lists(plugin.device_list_strategy, places),
        ids=IdStrategy(plugin.device_id_strategy),
        pass_device_specs=plugin.pass_device_specs,
        annotation_prefix=prefix,
        dev_root=flags.nvidia_dev_root or flags.nvidia_driver_root or "/",
        container_driver_root=plugin.container_driver_root,
        driver_root=flags.nvidia_driver_root or "/",
        cdi_kind=kind,
        cdi_spec_dir=plugin.cdi_spec_dir or DEFAULT_CDI_SPEC_DIR,
        hook_path=plugin.nvidia_ctk_path,
        features=tuple(
            feature
            for feature, wanted in (
                (Feature.GDRCOPY, flags.gdrcopy_enabled),
                (Feature.GDS, flags.gds_enabled),
                (Feature.MOFED, flags.mofed_enabled),
            )
            if wanted
        ),
        imex_channels=_channels(imex, places),
        needs_imex_channels=imex is not None and imex.required,
    )


def _channels(imex: schema.Imex | None, places: Places) -> tuple[int, ...]:
    found: dict[int, None] = {}
    for number, channel in enumerate(imex.channel_ids if imex is not None else ()):
        path = f"$.imex.channelIDs[{number}]"
        if not 0 <= channel < IMEX_CHANNELS or channel in found:
            raise places.error(
                path,
                f"{path[2:]} is {channel}, allowed are the numbers 0 to {IMEX_CHANNELS - 1}, each "
                "once",
            )
        found[channel] = None
    return tuple(found)


def _lists(value: str | list[str], places: Places) -> tuple[ListStrategy, ...]:
    path = f"{_PLUGIN}.deviceListStrategy"
    if isinstance(value, str):
        places.one_of(path, value, ListStrategy)
        return (ListStrategy(value),)
    if not value:
        raise places.error(
            path,
            f"{path[2:]} is an empty list, so no container would see a GPU; "
            f"name one or several of: {', '.join(ListStrategy)}",
        )
    for number, name in enumerate(value):
        places.one_of(f"{path}[{number}]", name, ListStrategy)
        if name == ListStrategy.AUTO and len(value) > 1:
            raise places.error(
                f"{path}[{number}]",
                f"{path[2:]} names auto and others; give auto alone, or all that are to be given",
            )
    return tuple(strategy for strategy in ListStrategy if strategy in value)


def check_discovery(flags: schema.Flags, places: Places) -> None:
    """Holds the strategy by which GPUs are found against those there are.

    Raises:
        ConfigError: the word is not one of them.
    """
    places.one_of("$.flags.deviceDiscoveryStrategy", flags.device_discovery_strategy, DISCOVERY)


def mps_root(flags: schema.Flags, places: Places) -> str:
    """Returns where pipes and logs of the MPS daemons are; empty for the run directory.

    Raises:
        ConfigError: no path can be that (`root_problem`).
    """
    check_mps_root(flags.mps_root, places)
    return str(PurePosixPath(flags.mps_root)) if flags.mps_root else ""
