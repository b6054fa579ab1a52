"""A node of real parts: kubelet, containerd and runc, and our agent, on simulated GPUs.

All of it lives in namespaces of its own (`node_keeper`), with the paths that a node has:
/var/lib/kubelet, /var/lib/vgpu, /run/vgpu. There is no API server: pods are static, files in a
directory that the kubelet watches, and what became of them is asked of the kubelet.
"""

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from libvgpu.sim import PROFILES, Machine

from . import ROOT, node_image, node_settings
from .node_host import NodeHost
from .node_init import ADDRESS, HOST_NAME
from .waiting import wait_until

EXAMPLES = ROOT / "deploy/examples"
METRICS_PORT = 9446


class RealNode(NodeHost):
    """A running node; `running_node` makes one."""

    def __init__(self, base: Path, parts: Path, config: Mapping[str, Any], gpus: Sequence[str]):
        """Makes it; `start` starts what runs on it.

        Args:
            base: an empty directory with a short name.
            parts: where `node_parts.build` put the kubelet.
            config: of the agent.
            gpus: profiles of the simulated machine.
        """
        self.machine = Machine.create([PROFILES[gpu] for gpu in gpus], base / "machine")
        self.config = base / "config.yaml"
        self.change_config(config)
        node_settings.write(base, self.machine.directory)
        super().__init__(base)
        self._parts, self._executed = parts, 0
        self._host_env = self.machine.environment(self.env) | {"PYTHONPATH": str(ROOT)}

    # ---- its parts -------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts containerd with the images, the MPS daemons, the agent and the kubelet."""
        self.start_process("containerd", ["containerd", "-c", f"{self.base}/containerd.toml"])
        node_image.write_pause(self.base / "pause.tar", self._parts / "pause")
        node_image.write_client(self.base / "client.tar", EXAMPLES / "client/client.py")
        wait_until(lambda: self.ctr("version")["status"] == 0, "containerd")
        for name in ("pause", "client"):
            imported = self.ctr("images", "import", f"{self.base}/{name}.tar")
            assert imported["status"] == 0, imported
        self.start_mps()
        self.start_agent()
        self.start_kubelet()

    def start_mps(self) -> None:
        """Starts the MPS daemons' runner."""
        argv = [sys.executable, "-m", "deviceplugin.mps", "--config", str(self.config)]
        self.start_process("mps", argv, self._host_env)

    def start_agent(self) -> None:
        """Starts the agent, with its defaults, and waits until the kubelet has every resource."""
        argv = [sys.executable, "-m", "deviceplugin", "--config", str(self.config),
                "--node-name", HOST_NAME, "--no-spawn-mps"]  # fmt: skip
        self.start_process("agent", argv, self._host_env)
        if "kubelet" in self._pids:
            self.wait_ready()

    def start_kubelet(self) -> None:
        """Starts the kubelet and waits until it has every resource of the agent."""
        argv = [str(self._parts / "kubelet"), "--config", str(self.base / "kubelet.yaml"),
                "--hostname-override", HOST_NAME, "--node-ip", ADDRESS, "--v=2"]  # fmt: skip
        self.start_process("kubelet", argv)
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until the agent says that the kubelet has every resource."""
        url = f"http://127.0.0.1:{METRICS_PORT}/readyz"
        wait_until(lambda: self.order("get", url=url)["status"] == 200, "the agent's /readyz")

    def ctr(self, *arguments: str) -> dict[str, Any]:
        """Runs containerd's tool on the containers of the kubelet."""
        return self.run("ctr", "-a", node_settings.CONTAINERD, "-n", "k8s.io", *arguments)

    def vgpuctl(self, *arguments: str) -> str:
        """Runs a verb with its defaults; returns what it prints."""
        done = self.run(sys.executable, "-m", "vgpuctl", *arguments, env=self._host_env)
        assert done["status"] == 0, done
        return str(done["out"])

    def change_config(self, config: Mapping[str, Any]) -> None:
        """Replaces the agent's config file in one step."""
        draft = self.config.with_suffix(".new")
        draft.write_text(yaml.safe_dump(dict(config), sort_keys=False))
        draft.replace(self.config)

    # ---- pods ------------------------------------------------------------------------------------

    def put(self, pod: Mapping[str, Any]) -> None:
        """Has the kubelet run a pod."""
        name = pod["metadata"]["name"]
        draft = self.base / f"{name}.yaml"
        draft.write_text(yaml.safe_dump(dict(pod)))
        draft.rename(self.base / "manifests" / draft.name)

    def delete(self, name: str) -> None:
        """Deletes a pod and waits until the kubelet has forgotten it."""
        (self.base / "manifests" / f"{name}.yaml").unlink()
        wait_until(lambda: self.pod(name) is None, f"end of pod {name}")

    def pod(self, name: str) -> dict[str, Any] | None:
        """Returns what the kubelet says of a pod."""
        url = f"http://127.0.0.1:{node_settings.KUBELET_PORT}/pods"
        got = self.order("get", url=url)
        if got["status"] != 200:
            return None
        for found in json.loads(got["body"])["items"] or ():
            if found["metadata"]["name"] == f"{name}-{HOST_NAME}":  # a static pod has its suffix
                return dict(found)
        return None

    def status(self, name: str) -> dict[str, Any]:
        """Returns a pod's status, with a ``phase`` even while the kubelet has not got the pod."""
        return {"phase": "", **(self.pod(name) or {}).get("status", {})}

    def container(self, name: str) -> dict[str, Any]:
        """Returns the status of a pod's only container, empty while there is none."""
        statuses = self.status(name).get("containerStatuses") or [{}]
        return dict(statuses[0])

    def said(self, name: str) -> list[dict[str, Any]]:
        """Returns what the present process of a pod's sample client has printed."""
        present = str(self.container(name).get("restartCount", ""))
        found = []
        for log in (log for log in self.logs(name) if log.stem == present):
            for line in log.read_text().splitlines():
                _, stream, whole, text = line.split(" ", 3)
                if stream == "stdout" and whole == "F":
                    found.append(json.loads(text))
        return found

    def logs(self, name: str) -> list[Path]:
        """Returns the logs of a pod's only container, one a start."""
        folders = f"default_{name}-{HOST_NAME}_*/*/*.log"
        return sorted((self.base / "log/pods").glob(folders))

    def wait_said(self, name: str, phase: str, number: int = 0) -> dict[str, Any]:
        """Waits for a line of the sample client: the ``number``-th of a phase."""

        def found() -> dict[str, Any] | None:
            lines = [line for line in self.said(name) if line["phase"] == phase]
            return lines[number] if len(lines) > number else None

        try:
            return dict(wait_until(found, f"{name}: {phase} {number}"))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words(name)}") from None

    def restart_containers(self, *names: str) -> None:
        """Kills the containers' processes and waits until the kubelet has started them again.

        It does so at once the first time; later it waits for a second, and in truth for 10 to 15,
        since only then it looks at the pod again.
        """
        before = self.restarts(*names)
        for name in names:
            self.end_container(name)
        self.wait_restarted(before)

    def end_container(self, name: str) -> None:
        """Kills the first process of a pod's container."""
        self.order("signal", pid=self.container_pid(name), number=signal.SIGKILL)

    def restarts(self, *names: str) -> dict[str, int]:
        """Returns how often the kubelet has started each pod's container again."""
        return {name: self.container(name)["restartCount"] for name in names}

    def wait_restarted(self, before: Mapping[str, int]) -> None:
        """Waits until each container runs after one more start than there were `restarts`."""

        def runs(name: str) -> bool:
            now = self.container(name)
            return now.get("restartCount", 0) > before[name] and "running" in now["state"]

        for name in before:
            wait_until(partial(runs, name), f"restart of {name}")

    def container_pid(self, name: str) -> int:
        """Returns the first process of a pod's container, as the node counts."""
        wanted = self.container(name)["containerID"].removeprefix("containerd://")
        for line in self.ctr("tasks", "list")["out"].splitlines():
            task, pid, _ = line.split()
            if task == wanted:
                return int(pid)
        raise AssertionError(f"{name} has no task: {self.ctr('tasks', 'list')}")

    def execute(self, name: str, code: str) -> Any:
        """Runs Python in a pod's container; returns what it prints, read as JSON."""
        container = wait_until(lambda: self.container(name).get("containerID"), f"start of {name}")
        return self.execute_by_id(str(container), code)

    def execute_by_id(self, container: str, code: str) -> Any:
        """As `execute`, of a container whose id the kubelet told earlier."""
        self._executed += 1
        done = self.ctr("tasks", "exec", "--exec-id", f"test-{self._executed}",
                        container.removeprefix("containerd://"), "python3", "-c", code)  # fmt: skip
        assert done["status"] == 0, done
        return json.loads(done["out"])

    def last_words(self, name: str) -> str:
        """Returns what helps to understand why a pod is not as it should be."""
        words = [f"status: {self.status(name)}"]
        words += [f"{log}:\n{log.read_text()[-2000:]}" for log in self.logs(name)]
        for part in ("agent", "mps", "kubelet", "containerd", "node"):
            log = self.base / f"{part}.log"
            words.append(f"{part}:\n{log.read_text()[-2500:] if log.exists() else 'no log'}")
        return "\n".join(words)


def example(name: str) -> dict[str, Any]:
    """Returns a pod of deploy/examples as a service: what ended is started again.

    The examples run to their end; of a container that is never started again no restart could be
    tested.
    """
    pod = dict(yaml.safe_load((EXAMPLES / name / "pod.yaml").read_text()))
    pod["spec"]["restartPolicy"] = "Always"
    return pod


@contextmanager
def running_node(parts: Path, config: Mapping[str, Any], gpus: Sequence[str]) -> Iterator[RealNode]:
    """A node that ends with the block and leaves nothing behind."""
    # Sockets lie below it, so its name must be short.
    base = Path(tempfile.mkdtemp(prefix="vgpu-node-", dir="/tmp"))
    base.chmod(0o755)
    node = None
    try:
        node = RealNode(base, parts, config, gpus)
        node.start()
        yield node
    finally:
        try:
            if node is not None and not node.ended:
                assert node.end() == 0, (base / "node.log").read_text()
        finally:
            shutil.rmtree(base)
