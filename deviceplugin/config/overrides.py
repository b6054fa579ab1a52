"""Flags that a command line or an environment gives, under the names of NVIDIA's plugin and of GPU
Feature Discovery: the one list of them.

The file counts least, then the environment, then the command line. An empty variable says nothing.
Pure: the values come in as strings, and `plain_data` puts them over what the file says.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from deviceplugin.model.agent_config import SaidFlag
from libvgpu.errors import UsageError
from libvgpu.sizes import whole_number


class Kind(Enum):
    """How a string becomes a value."""

    TEXT = "a text"
    BOOLEAN = "true or false"
    TEXTS = "texts, separated by commas"
    NUMBERS = "whole numbers, separated by commas"


@dataclass(frozen=True, slots=True)
class FlagName:
    """One flag.

    Attributes:
        key: where it stands in the file, with dots.
        options: on the command line, the present name first.
        variables: of the environment; the first that says something counts.
    """

    key: str
    options: tuple[str, ...]
    variables: tuple[str, ...]
    kind: Kind = Kind.TEXT


def _flag(key: str, options: str, variables: str, kind: Kind = Kind.TEXT) -> FlagName:
    return FlagName(key, tuple(options.split()), tuple(variables.split()), kind)


FLAG_NAMES = (
    _flag("flags.migStrategy", "--mig-strategy", "MIG_STRATEGY GFD_MIG_STRATEGY"),
    _flag(
        "flags.failOnInitError", "--fail-on-init-error",
        "FAIL_ON_INIT_ERROR GFD_FAIL_ON_INIT_ERROR", Kind.BOOLEAN,
    ),
    _flag("flags.mpsRoot", "--mps-root", "MPS_ROOT"),
    _flag("flags.nvidiaDriverRoot", "--nvidia-driver-root", "NVIDIA_DRIVER_ROOT"),
    _flag("flags.nvidiaDevRoot", "--nvidia-dev-root --dev-root", "NVIDIA_DEV_ROOT DEV_ROOT"),
    _flag("flags.gdrcopyEnabled", "--gdrcopy-enabled", "GDRCOPY_ENABLED", Kind.BOOLEAN),
    _flag("flags.gdsEnabled", "--gds-enabled", "GDS_ENABLED", Kind.BOOLEAN),
    _flag("flags.mofedEnabled", "--mofed-enabled", "MOFED_ENABLED", Kind.BOOLEAN),
    _flag(
        "flags.useNodeFeatureAPI", "--use-node-feature-api",
        "USE_NODE_FEATURE_API GFD_USE_NODE_FEATURE_API", Kind.BOOLEAN,
    ),
    _flag(
        "flags.deviceDiscoveryStrategy", "--device-discovery-strategy", "DEVICE_DISCOVERY_STRATEGY"
    ),
    _flag(
        "flags.plugin.passDeviceSpecs", "--pass-device-specs", "PASS_DEVICE_SPECS", Kind.BOOLEAN
    ),
    _flag(
        "flags.plugin.deviceListStrategy", "--device-list-strategy", "DEVICE_LIST_STRATEGY",
        Kind.TEXTS,
    ),
    _flag("flags.plugin.deviceIDStrategy", "--device-id-strategy", "DEVICE_ID_STRATEGY"),
    _flag("flags.plugin.cdiKind", "--cdi-kind", "CDI_KIND"),
    _flag("flags.plugin.cdiSpecDir", "--cdi-spec-dir", "CDI_SPEC_DIR"),
    _flag("flags.plugin.cdiAnnotationPrefix", "--cdi-annotation-prefix", "CDI_ANNOTATION_PREFIX"),
    _flag(
        "flags.plugin.nvidiaCTKPath", "--nvidia-cdi-hook-path --nvidia-ctk-path",
        "NVIDIA_CDI_HOOK_PATH NVIDIA_CTK_PATH",
    ),
    _flag(
        "flags.plugin.containerDriverRoot", "--driver-root-ctr-path --container-driver-root",
        "DRIVER_ROOT_CTR_PATH CONTAINER_DRIVER_ROOT",
    ),
    _flag(
        "flags.plugin.sharedDevicesAllocationPolicy", "--shared-devices-allocation-policy",
        "SHARED_DEVICES_ALLOCATION_POLICY",
    ),
    _flag("flags.gfd.oneshot", "--oneshot", "GFD_ONESHOT", Kind.BOOLEAN),
    _flag("flags.gfd.noTimestamp", "--no-timestamp", "GFD_NO_TIMESTAMP", Kind.BOOLEAN),
    _flag("flags.gfd.sleepInterval", "--sleep-interval", "GFD_SLEEP_INTERVAL"),
    _flag("flags.gfd.outputFile", "--output-file", "GFD_OUTPUT_FILE"),
    _flag("flags.gfd.machineTypeFile", "--machine-type-file", "GFD_MACHINE_TYPE_FILE"),
    _flag("imex.channelIDs", "--imex-channel-ids", "IMEX_CHANNEL_IDS", Kind.NUMBERS),
    _flag("imex.required", "--imex-required", "IMEX_REQUIRED", Kind.BOOLEAN),
)  # fmt: skip
#: What Go's flag package takes for a boolean.
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "true"), True),
    **dict.fromkeys(("0", "f", "false"), False),
}


def said_flags(
    options: Mapping[str, Sequence[str]], environment: Mapping[str, str]
) -> tuple[SaidFlag, ...]:
    """Returns what command line and environment say.

    Args:
        options: the values of each option that was given, by the first of its names.

    Raises:
        UsageError: a value of the wrong kind.
    """
    found = []
    for flag in FLAG_NAMES:
        given = options.get(flag.options[0])
        if given:
            found.append(_said(flag, given, flag.options[0]))
            continue
        name = next((each for each in flag.variables if environment.get(each)), None)
        if name is not None:
            found.append(_said(flag, [environment[name]], name))
    return tuple(found)


def _said(flag: FlagName, given: Sequence[str], said_by: str) -> SaidFlag:
    text = given[-1]
    value: Any = text
    if flag.kind is Kind.BOOLEAN:
        value = _BOOLEANS.get(text.lower())
    elif flag.kind in (Kind.TEXTS, Kind.NUMBERS):
        value = [part.strip() for each in given for part in each.split(",") if part.strip()]
        if flag.kind is Kind.NUMBERS:
            value = [whole_number(part) for part in value]
            value = None if None in value else value
    if value is None:
        raise UsageError(f"{said_by} is {text!r}, allowed are {flag.kind.value}")
    return SaidFlag(flag.key, value, said_by)
