"""The main job of the demo: pods in, slices out, every line checked.

1. A node comes up: simulated machine, kubelet stand-in, MPS daemons, the real agent.
2. The pods of the examples are admitted one by one and their containers started with what the
   agent answered. Memory is taken side by side: a container keeps what it was granted. Compute is
   measured one after the other on each GPU, so that each share can be judged by itself; how
   containers that want one GPU at the same moment divide it is measured by the benchmarks.
3. A table of what each asked, saw and got; then `vgpuctl ps`.
4. A limit changes in the config file and holds in the running process.

Everything ends with the function, however it ends.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

from deviceplugin.model.units import gpu_of
from deviceplugin.testing import PodManifest, read_pod
from libvgpu.errors import UsageError, VgpuError
from libvgpu.limits import Family
from libvgpu.sizes import format_size

from . import container, image
from .checks import check_listed, check_slice
from .children import Children, tool_environment
from .node import GPU_PROFILES, PATIENCE_S, Node
from .output import Report
from .table import COLUMNS, row
from .tenant import Asked, DemoContainer, asked_by
from .workspace import Workspace, sweep

#: Those of the examples that fit side by side on the demo's two GPUs.
_PODS = ("mps-half", "vgpu-30", "vgpu-70")
_CHANGE_BAR_S = 1.0


def run_demo(examples: Path, seed: int | None) -> bool:
    """Runs the demo; returns whether everything held.

    Args:
        examples: deploy/examples of a checkout.
        seed: of the kubelet's random choices; None for fresh ones.

    Raises:
        UsageError: the examples are not there or not as they must be.
    """
    started_at = time.monotonic()
    missing = [name for name in _PODS if not (examples / name / "pod.yaml").is_file()]
    if missing:
        raise UsageError(
            f"{examples} holds no {missing[0]}/pod.yaml: the demo needs the project's examples"
        )
    pods = [read_pod(examples / name / "pod.yaml") for name in _PODS]
    report = Report()
    for directory in sweep():
        report.say(f"removed {directory}, left by a demo that was killed")
    with _ending_on_signals(), Workspace() as workspace:
        children = Children(workspace)
        try:
            _Scenario(report, workspace, children, examples, seed).run(pods)
        except VgpuError as error:
            report.failed(error.message)
        finally:
            children.end_all()
    report.head("Clean-up")
    report.check("processes left", "none", ", ".join(children.alive()) or "none")
    files = str(workspace.directory) if workspace.directory.exists() else "none"
    report.check("files left", "none", files)
    return report.verdict(time.monotonic() - started_at)


class _Scenario:
    """One run; its steps in the order of their methods."""

    def __init__(
        self,
        report: Report,
        workspace: Workspace,
        children: Children,
        examples: Path,
        seed: int | None,
    ) -> None:
        self.report = report
        self.workspace = workspace
        self.children = children
        self.isolated = container.can_isolate(tool_environment())
        self.image = image.build(workspace.path("image"), examples / "client" / "client.py")
        self.node = Node(workspace, children, examples / "config.yaml", seed)
        self.tenants: list[DemoContainer] = []

    def run(self, pods: list[PodManifest]) -> None:
        try:
            self.bring_up(pods)
            for pod in pods:
                self.admit(pod)
            for tenant in self.tenants:
                tenant.wait_for("compute", 0, PATIENCE_S, self.children)
            self.show_slices()
            self.show_ps()
            self.change_a_limit()
        except VgpuError:
            self.children.check()  # a process that has ended is the better reason
            raise
        finally:
            self.node.stop()

    def bring_up(self, pods: list[PodManifest]) -> None:
        how = "a private root file system each" if self.isolated else "translated paths"
        self.report.say(f"simulated machine {','.join(GPU_PROFILES)}; containers with {how}")
        self.report.say("starting kubelet stand-in, MPS daemons and node agent")
        resources = {r for pod in pods for c in pod.containers for r in c.limits}
        self.node.start(resources)

    def admit(self, pod: PodManifest) -> None:
        admitted = self.node.kubelet.admit(pod)
        for manifest in pod.containers:
            asked = asked_by(pod, manifest, self.node.sharing)
            units = admitted.container(manifest.name).devices
            gpu_uuid = gpu_of(next(iter(units.values()))[0])
            for other in self.tenants:  # one at a time computes on a GPU
                if other.gpu_uuid == gpu_uuid:
                    other.wait_for("compute", 0, PATIENCE_S, self.children)
            options = self.node.kubelet.run_options(admitted, manifest.name)
            for conflict in options.conflicts:
                self.report.failed(f"{pod.name}/{manifest.name}: answers disagree: {conflict}")
            plan = container.plan(
                pod,
                manifest,
                options,
                self.image,
                self.node.machine.directory,
                self.workspace.path(f"root-{pod.name}-{manifest.name}") if self.isolated else None,
            )
            self.report.say(
                f"{pod.name}/{manifest.name}: admitted on {gpu_uuid}, starting it as user "
                f"{plan.order.uid if self.isolated else os.getuid()}"
            )
            child = self.children.start(plan.order, read_output=True)
            tenant = DemoContainer(admitted, manifest, asked, gpu_uuid, child, plan.notes, {})
            self.tenants.append(tenant)
            tenant.wait_for("memory", 0, PATIENCE_S, self.children)

    def show_slices(self) -> None:
        self.report.head("Slices (all figures are simulated; shares on one GPU one after another)")
        self.report.table([row(tenant, self.isolated) for tenant in self.tenants], COLUMNS)
        self.report.head("Checks")
        for tenant in self.tenants:
            self.check_round(tenant, tenant.asked, 0)

    def check_round(self, tenant: DemoContainer, asked: Asked, number: int) -> None:
        said = {
            phase: tenant.wait_for(phase, number, PATIENCE_S, self.children)
            for phase in ("view", "memory", "compute")
        }
        check_slice(self.report, tenant, asked, said, self.node.machine)

    def show_ps(self) -> None:
        self.report.head("vgpuctl ps")
        self.report.show(self.node.vgpuctl("ps"))
        rows = json.loads(self.node.vgpuctl("ps", "-o", "json"))
        for tenant in self.tenants:
            check_listed(self.report, tenant, rows)

    def change_a_limit(self) -> None:
        tenant = next((t for t in self.tenants if t.asked.family is Family.VGPU), None)
        if tenant is None:
            raise VgpuError("no pod of family vgpu: there is no limit to change at run time")
        old = tenant.asked
        new = replace(old, core_percent=old.core_percent // 2, memory_bytes=old.memory_bytes // 2)
        self.report.head(f"A changed limit of a running container: {tenant.name}")
        self.report.show(
            f"  in the config file: core {old.core_percent} -> {new.core_percent}, "
            f"memory {format_size(old.memory_bytes)} -> {format_size(new.memory_bytes)}"
        )
        changed_s = time.monotonic()
        self.node.change_config(
            {
                "match": {
                    "namespace": tenant.pod.manifest.namespace,
                    "container": tenant.manifest.name,
                },
                "core": new.core_percent,
                "memory": f"{new.memory_bytes}B",
            }
        )
        tenant.wait_for("view", 1, PATIENCE_S, self.children)
        seconds = time.monotonic() - changed_s
        self.report.check(
            f"{tenant.name}: seen by the process",
            f"within {_CHANGE_BAR_S:.0f} s",
            f"{seconds:.2f} s after the file changed",
            seconds <= _CHANGE_BAR_S,
        )
        self.check_round(tenant, new, 1)


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into an orderly end with the shell's exit status."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
