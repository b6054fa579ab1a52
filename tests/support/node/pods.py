"""The pods of a node: static ones, files in a directory that its kubelet watches.

What became of them is asked of the kubelet; what runs in their containers, of containerd.
"""

import json
import signal
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from support.node import containerd as node_containerd
from support.node import settings as node_settings
from support.node.host import NodeHost
from support.node.init import HOST_NAME
from support.waiting import wait_until


class NodeWithPods(NodeHost):
    """A node whose kubelet and containerd are told what to run.

    Attributes:
        containerd: the directory of containerd's programs.
    """

    def __init__(self, base: Path, containerd: Path) -> None:
        """Makes the node; see `NodeHost`."""
        super().__init__(base)
        self.containerd = containerd
        self._executed = 0

    def ctr(self, *arguments: str) -> dict[str, Any]:
        """Runs containerd's tool on the containers of the kubelet."""
        address = ("-a", node_containerd.CONTAINERD, "-n", "k8s.io")
        return self.run(f"{self.containerd}/ctr", *address, *arguments)

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

    def wait_judged(self, name: str) -> dict[str, Any]:
        """Waits until the kubelet has started or refused a pod; returns the pod's status."""

        def judged() -> dict[str, Any] | None:
            status = self.status(name)
            return status if status["phase"] in ("Running", "Failed") else None

        return wait_until(judged, f"pod {name} running or refused")

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

    def wait_refused_start(self, name: str) -> str:
        """Waits until a pod's container cannot be started; returns the kubelet's sentence."""

        def refusal() -> dict[str, Any] | None:
            waiting = dict(self.container(name)["state"].get("waiting", {}))
            return waiting if waiting.get("reason") not in (None, "CrashLoopBackOff") else None

        return str(wait_until(refusal, f"start of {name} in vain")["message"])

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
        return "\n".join((*words, self.last_words_of_parts()))

    def last_words_of_parts(self) -> str:
        """Returns what the node's own programs said last."""
        words = []
        for part in ("agent", "mps", "kubelet", "containerd", "node"):
            log = self.base / f"{part}.log"
            words.append(f"{part}:\n{log.read_text()[-2500:] if log.exists() else 'no log'}")
        return "\n".join(words)
