"""What the config says about the forms of an answer: plain values, and the keys made of them.

`flags` reads them from the config file, `answers` acts by them.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

DEFAULT_ANNOTATION_PREFIX = "cdi.k8s.io/"
#: The kind that NVIDIA's device plugin gives the GPUs in the CDI specs that it writes.
DEFAULT_CDI_KIND = "k8s.device-plugin.nvidia.com/gpu"
DEFAULT_CDI_SPEC_DIR = "/var/run/cdi"
# An annotation's key: a DNS name, a slash, and a name that begins and ends with a letter or digit.
_KEY = re.compile(
    r"(?P<domain>[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)/"
    r"(?P<name>[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)"
)
_DOMAIN_CHARACTERS, _NAME_CHARACTERS = 253, 63
# A kind as every version of CDI takes it: the class has no dot.
_KIND = re.compile(
    r"(?P<vendor>[A-Za-z]([-A-Za-z0-9_.]*[A-Za-z0-9])?)/[A-Za-z]([-A-Za-z0-9_]*[A-Za-z0-9])?"
)
#: Stands for an allocation's id where a prefix is judged before there is one.
_SAMPLE_ID = "0123456789abcdef"


class ListStrategy(StrEnum):
    """How the list of devices travels; the values are those of ``deviceListStrategy``."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"
    AUTO = "auto"  # ours; alone, and replaced by others when the agent starts


class IdStrategy(StrEnum):
    """What a device is called in the list; the values are those of ``deviceIDStrategy``."""

    UUID = "uuid"
    INDEX = "index"


class Feature(StrEnum):
    """What NVIDIA's runtime may bring in next to a GPU; the values end its variables' names."""

    GDRCOPY = "GDRCOPY"
    GDS = "GDS"
    MOFED = "MOFED"


#: A driver has so many IMEX channels (NVreg_ImexChannelCount, at most 2048).
IMEX_CHANNELS = 2048


@dataclass(frozen=True, slots=True)
class DeviceForms:
    """What the config says about the forms.

    Attributes:
        lists: each once, in the order of `ListStrategy`.
        pass_device_specs: give device nodes too, so that who manages a container's devices (a
            kubelet with static CPUs) knows those that NVIDIA's runtime would add unseen.
        annotation_prefix: what the key of a CDI annotation begins with.
        dev_root: the host's directory that has ``dev`` with the nodes.
        container_driver_root: where the agent sees that directory, empty if nowhere else.
        driver_root: the host's directory that has the driver's libraries and tools.
        cdi_kind: of the CDI names.
        cdi_spec_dir: where the agent writes its CDI spec on the node.
        hook_path: of NVIDIA's hook for CDI on the node; empty: where it is known to be.
        features: what every container with a GPU gets in addition.
        imex_channels: numbers of the IMEX channels that it gets, too, as far as they exist.
        needs_imex_channels: it is refused where one of them does not.
    """

    lists: tuple[ListStrategy, ...] = (ListStrategy.ENVVAR,)
    ids: IdStrategy = IdStrategy.UUID
    pass_device_specs: bool = False
    annotation_prefix: str = DEFAULT_ANNOTATION_PREFIX
    dev_root: str = "/"
    container_driver_root: str = ""
    driver_root: str = "/"
    cdi_kind: str = DEFAULT_CDI_KIND
    cdi_spec_dir: str = DEFAULT_CDI_SPEC_DIR
    hook_path: str = ""
    features: tuple[Feature, ...] = ()
    imex_channels: tuple[int, ...] = ()
    needs_imex_channels: bool = False


def annotation_key(prefix: str, allocation_id: str) -> str:
    """Returns the key under which the CDI names of one allocation stand."""
    return f"{prefix}vgpu_{allocation_id}"


def is_annotation_prefix(prefix: str) -> bool:
    """Returns whether the keys made with ``prefix`` are annotations that Kubernetes takes."""
    key = _KEY.fullmatch(annotation_key(prefix, _SAMPLE_ID))
    return (
        key is not None
        and len(key["domain"]) <= _DOMAIN_CHARACTERS
        and len(key["name"]) <= _NAME_CHARACTERS
    )


def is_cdi_kind(kind: str) -> bool:
    """Returns whether CDI takes ``kind``, in any of its versions."""
    match = _KIND.fullmatch(kind)
    return match is not None and len(match["vendor"]) <= _DOMAIN_CHARACTERS
