"""What the page ``/v1/state`` says: the agent, its config, and what stands on the node."""

from collections.abc import Mapping

import msgspec

from libvgpu.decoding import json_decoder

VERSION = 1


class ReportedAgent(msgspec.Struct, frozen=True):
    """The agent itself; ``started_at`` in seconds since the epoch.

    Attributes:
        sees_node_pids: its pids are the node's, as it needs to tell whose processes use a GPU.
    """

    version: str
    pid: int
    node: str
    started_at: float
    sees_node_pids: bool = True


class ReportedConfig(msgspec.Struct, frozen=True):
    """Its config.

    Attributes:
        path: of the file that was last looked at.
        name: of the named config in force; empty where there is one file only, or for the empty
            config.
        chosen_by: what chose the name; empty where there is one file only.
        is_kept: what is in force was kept from before the agent's start, since the file is bad.
        label_problem: why the label that chooses the name is not told; empty where it is.
        error: why the file's present content, or a part of it, is not in force.
        in_part: the rest of the present content is.
    """

    path: str
    digest: str
    rules: int
    error: str | None = None
    hint: str | None = None
    in_part: bool = False
    name: str = ""
    chosen_by: str = ""
    is_kept: bool = False
    label_problem: str = ""

    @property
    def shown(self) -> str:
        """The named config in force and what chose it; empty where there is one file only."""
        name = f"config {self.name}" if self.name else "the empty config"
        return f"{name}, chosen by {self.chosen_by}" if self.chosen_by else ""


class ReportedResource(msgspec.Struct, frozen=True):
    """One resource; ``registered_at`` in seconds since the epoch, None while it is not."""

    name: str
    registered_at: float | None


class ReportedProcess(msgspec.Struct, frozen=True):
    """A process on a GPU.

    Attributes:
        memory_bytes: None where NVML cannot say.
        allocation: whose process it is; empty where it belongs to none.
        owner: whose container it is in; empty without an allocation.
        how: how it gets around its slice; empty without an allocation.
    """

    gpu: str
    pid: int
    command: str
    memory_bytes: int | None = None
    allocation: str = ""
    owner: str = ""
    how: str = "without the shim"


class ReportedDamage(msgspec.Struct, frozen=True):
    """A container that has made its `usage` unreadable."""

    allocation: str
    owner: str = ""
    problem: str = ""


class ReportedCharge(msgspec.Struct, frozen=True):
    """Memory of a container that its ledger does not know, and that its slice is charged."""

    gpu: str
    allocation: str
    owner: str = ""
    memory_bytes: int = 0


class ReportedForgery(msgspec.Struct, frozen=True):
    """A container that takes more of a GPU's time than its books say."""

    gpu: str
    allocation: str
    owner: str = ""
    share_percent: int = 0


class ReportedWatch(msgspec.Struct, frozen=True):
    """What the watch of processes has found; the lists may be shorter than their counts.

    Attributes:
        problem: why nothing can be seen; empty where it can.
        policy: what is done about a process that bypasses its slice.
        ended_count: how many processes were ended since the agent started.
    """

    problem: str = ""
    policy: str = ""
    bypassing_count: int = 0
    bypassing: tuple[ReportedProcess, ...] = ()
    foreign_count: int = 0
    foreign: tuple[ReportedProcess, ...] = ()
    damaged_count: int = 0
    damaged: tuple[ReportedDamage, ...] = ()
    charged_count: int = 0
    charged: tuple[ReportedCharge, ...] = ()
    forged_count: int = 0
    forged: tuple[ReportedForgery, ...] = ()
    ended_count: int = 0


class ReportedInjection(msgspec.Struct, frozen=True):
    """How containers get their GPUs.

    Attributes:
        lists: values of ``deviceListStrategy`` in force; none of an agent that does not say.
        because: why these.
        needs_class: runtime handlers of which pods must name one.
        spec: the CDI spec that the agent keeps; empty where it needs none.
        problems: what is wrong with them, a sentence each.
    """

    lists: tuple[str, ...] = ()
    because: str = ""
    needs_class: tuple[str, ...] = ()
    spec: str = ""
    problems: tuple[str, ...] = ()


class ReportedGpu(msgspec.Struct, frozen=True):
    """A GPU or MIG device of an allocation.

    Attributes:
        core: where the share in force comes from; empty of an agent that does not say.
        memory: the same of the memory limit.
        compute: the same of how the share is held.
        asked_core_percent: what was asked for; None of an agent that does not say.
    """

    gpu: str
    core: str = ""
    memory: str = ""
    compute: str = ""
    asked_core_percent: int | None = None
    asked_memory_bytes: int | None = None


class ReportedAllocation(msgspec.Struct, frozen=True):
    """A slice that a container has."""

    allocation: str
    owner: str
    devices: tuple[ReportedGpu, ...] = ()
    shim_build: str = ""


class ReportedDevice(msgspec.Struct, frozen=True):
    """A device or replica that a container has; ``owner`` is empty while it is not known."""

    resource: str
    id: str
    owner: str = ""


class AgentReport(msgspec.Struct, frozen=True):
    """The page.

    Attributes:
        shim_build: the build id of the shim that new containers get.
        mps_gpus: those under MPS.
        loop_problem: why the agent is not healthy; None where it is.
        podresources_problem: why the kubelet's record is not known; None where it is.
        unheard_resources: that the kubelet took and does not listen to.
        pods_problem: why the pods of the node are not followed; empty while they are.
        publish_problem: why schedulers are not told what the node has; empty while they are.
        unhealthy_gpus: why nothing is given of a GPU that is ill, by UUID.
        left_out_gpus: why a GPU could not be read, by its index.
        driver_problem: why the driver does not answer; empty where it does.
        draining_gpus: what a GPU waits for before it is shared as the config says, by UUID.
        withheld_gpus: why nothing of a GPU is offered, by UUID.
        unmatched_entries: of the config, that are for no GPU of the node.
        mig_differences: how a GPU is cut otherwise than the config says, by UUID.
    """

    agent: ReportedAgent
    config: ReportedConfig
    resources: tuple[ReportedResource, ...]
    shim_build: str
    mps_gpus: tuple[str, ...] = ()
    loop_problem: str | None = None
    podresources_problem: str | None = None
    unheard_resources: tuple[str, ...] = ()
    pods_problem: str = ""
    publish_problem: str = ""
    unhealthy_gpus: Mapping[str, str] = {}
    left_out_gpus: Mapping[str, str] = {}
    driver_problem: str = ""
    watch: ReportedWatch = ReportedWatch()
    draining_gpus: Mapping[str, str] = {}
    injection: ReportedInjection = ReportedInjection()
    withheld_gpus: Mapping[str, str] = {}
    unmatched_entries: tuple[str, ...] = ()
    mig_differences: Mapping[str, str] = {}
    allocations: tuple[ReportedAllocation, ...] = ()
    devices: tuple[ReportedDevice, ...] = ()
    version: int = VERSION


STATE = json_decoder(AgentReport)
