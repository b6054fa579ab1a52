"""What a whole, good config says, and the text that it was read from.

`config` reads and checks it; everybody else takes it as it is.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from libvgpu.places import Places

from .device_forms import DeviceForms
from .fractional import FractionalEntry
from .label_settings import LabelSettings
from .limit_rules import LimitRule
from .mig_layouts import MigLayout
from .quotas import Quota
from .whole_devices import GIVEN_WHOLE, WholeDevices


class WatchPolicy(StrEnum):
    """What is done about a process that bypasses its slice."""

    REPORT = "report"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class SaidFlag:
    """The value of a flag that the file does not decide.

    Attributes:
        key: where it would stand in the file.
        said_by: the option or the variable, for messages.
    """

    key: str
    value: Any
    said_by: str


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One reading of the config.

    Attributes:
        place: the file (or the directory, where no config of it is chosen), for messages.
        name: of the named config; empty where there is one file only, or for the empty config.
        chosen_by: what chose the name; empty where there is one file only.
        problem: why there is no text, as a sentence; empty where there is.
        was_in_force: it was accepted before, perhaps by an earlier version that allowed more.
    """

    place: str
    text: str = ""
    name: str = ""
    chosen_by: str = ""
    problem: str = ""
    was_in_force: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """What a whole, good config file says.

    Attributes:
        forms: how containers are told which GPUs are theirs.
        watch: what is done about a process that bypasses its slice.
        whole: of the devices that are given whole or as replicas.
        mig_layouts: into which MIG devices GPUs are to be cut.
        said: flags that command line and environment put over the file's.
        fail_on_init_error: where NVML lists nothing at the start, the agent ends, else waits.
        digest: hash of the text, to tell one version of the file from another.
        mps_root: where pipes and logs of MPS daemons are; empty for the run directory.
        labels: how the node is labelled.
        quotas: what the pods of a namespace may hold; the scheduler's extender enforces them.
    """

    resource_domain: str
    fractional: tuple[FractionalEntry, ...]
    rules: tuple[LimitRule, ...]
    forms: DeviceForms
    digest: str
    text: str
    places: Places
    watch: WatchPolicy = WatchPolicy.REPORT
    whole: WholeDevices = GIVEN_WHOLE
    mig_layouts: tuple[MigLayout, ...] = ()
    said: tuple[SaidFlag, ...] = ()
    fail_on_init_error: bool = True
    mps_root: str = ""
    labels: LabelSettings = field(default_factory=LabelSettings)
    quotas: tuple[Quota, ...] = ()
