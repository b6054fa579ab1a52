"""A simulated node for the pictures: a real agent, a kubelet stand-in, programs in slices."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import libvgpu
from deviceplugin.testing import AdmittedPod, ContainerManifest, PodManifest, StandInKubelet
from libvgpu import region
from libvgpu.errors import VgpuError
from libvgpu.sim import Machine, parse_spec

from .tenant import Behaviour

_ROOT = Path(libvgpu.__file__).resolve().parent.parent
_READY_S, _END_S, _LAST_LINES = 60.0, 10.0, 5
_PORT = re.compile(r"metrics=127\.0\.0\.1:(\d+)")
_TENANT = Path(__file__).with_name("tenant.py")


class Node:
    """One node; `close` it.

    Attributes:
        name: of the node.
        port: of the agent's metrics.
    """

    def __init__(
        self, base: Path, name: str, spec: str, config: str, resources: Sequence[str], seed: int
    ) -> None:
        """Starts kubelet and agent, and waits until the resources are offered.

        Args:
            base: an empty directory with a short path, since a socket's path has 107 bytes.
            spec: of the machine, as `parse_spec` reads it.
            config: the agent's.

        Raises:
            VgpuError: the agent does not get there.
        """
        self.name, self._base = name, base
        self._programs: list[subprocess.Popen[bytes]] = []
        self._machine = Machine.create(parse_spec(spec).profiles, base / "m")
        (base / "config.yaml").write_text(config)
        self._kubelet = StandInKubelet(base / "k", seed=seed)
        self._kubelet.start()
        environment = self._machine.environment(os.environ) | {"PYTHONPATH": str(_ROOT)}
        with open(base / "log", "ab") as log:
            self._agent = subprocess.Popen(
                [sys.executable, "-m", "deviceplugin", f"--config={base / 'config.yaml'}",
                 f"--run-dir={base / 'r'}", f"--kubelet-dir={base / 'k'}",
                 f"--state-dir={base / 's'}", "--metrics-address=127.0.0.1:0", "--no-spawn-mps",
                 f"--node-name={name}"],
                cwd=_ROOT, env=environment, stdout=log, stderr=log,
            )  # fmt: skip
        try:
            self._kubelet.wait_for_resources(resources, _READY_S, self.check)
            found = _PORT.search((base / "log").read_text())
            if found is None:
                raise VgpuError(f"the agent does not say where its metrics are: {self._words()}")
        except BaseException:
            self.close()
            raise
        self.port = int(found[1])

    def admit(self, namespace: str, pod: str, limits: Mapping[str, int]) -> AdmittedPod:
        """Admits a pod with one container, ``main``.

        Args:
            limits: by resource.
        """
        container = ContainerManifest("main", limits=dict(limits))
        return self._kubelet.admit(PodManifest(pod, (container,), namespace))

    def finish(self, pod: AdmittedPod) -> None:
        """Ends a pod in which nothing runs."""
        self._kubelet.finish(pod)

    def run(self, pod: AdmittedPod, behaviour: Behaviour) -> None:
        """Starts a program in the slice of a pod."""
        options = self._kubelet.run_options(pod, "main")
        mounts = {each.container_path: each.host_path for each in options.mounts}
        slice_ = Path(mounts["/run/vgpu/limits"]).parent
        uuids = ",".join(device.uuid for device in region.read_limits(slice_).limits.devices)
        preload = Path(mounts["/etc/ld.so.preload"]).with_name("libvgpu.so")
        environment = self._machine.environment(os.environ) | {
            "LD_PRELOAD": str(preload),
            "VGPU_DIR": str(slice_),
            "CUDA_VISIBLE_DEVICES": uuids,
        }
        with open(self._base / "programs", "ab") as log:
            self._programs.append(
                subprocess.Popen(
                    [sys.executable, str(_TENANT), json.dumps(asdict(behaviour))],
                    env=environment,
                    stdout=log,
                    stderr=log,
                )
            )

    def check(self) -> None:
        """Makes sure that the agent and the programs run.

        Raises:
            VgpuError: one does not; with the last words.
        """
        for process in (self._agent, *self._programs):
            if process.poll() is not None:
                raise VgpuError(
                    f"{' '.join(map(str, process.args))[:80]} ended on {self.name} with status "  # type: ignore[arg-type]
                    f"{process.returncode}: {self._words()}"
                )

    def close(self) -> None:
        """Ends everything."""
        for process in (*self._programs, self._agent):
            process.terminate()
        for process in (*self._programs, self._agent):
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._kubelet.stop()
        self._machine.remove()

    def _words(self) -> str:
        lines: list[str] = []
        for name in ("log", "programs"):
            file = self._base / name
            if file.exists():
                lines += file.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return " | ".join(lines)
