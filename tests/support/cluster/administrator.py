"""Somebody who installs this on a cluster and types what the pages say, as it stands.

They are on the node of a `RealCluster`, in a checkout of their own, with the project's environment,
kubectl, helm, skopeo and crane. A registry listens there on `REGISTRY`, without TLS; to skopeo that
is said in its own file, as one would for such a registry, and crane and containerd expect it of
localhost.
"""

import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from support import ROOT
from support.cluster import stand_in_agents
from support.cluster.documented import Command
from support.cluster.go_programs import GoPrograms
from support.cluster.install import helm_program
from support.cluster.real import RealCluster
from support.waiting import wait_until

_RELEASE = "github.com/google/go-containerregistry"
CRANE = GoPrograms(
    "crane",
    "crane",
    (f"{_RELEASE}/cmd/crane",),
    module=ROOT / "tests/e2e/releases",
    release=_RELEASE,
)
REGISTRY = "localhost:5000"
_COMMAND_S = 300.0
_NOT_COPIED = (".git", ".venv", "build", "dist", "__pycache__")
_INSECURE = f'[[registry]]\nlocation = "{REGISTRY}"\ninsecure = true\n'


def missing() -> str:
    """Returns as a sentence what keeps the pages' commands from being typed, empty if nothing."""
    if shutil.which("skopeo") is None:
        return "no skopeo; as root: sh deploy/dev/install-prerequisites.sh node"
    return CRANE.missing()


class Administrator:
    """Types commands.

    Attributes:
        checkout: the directory in which they are typed.
        typed: all of them so far, as the pages have them.
    """

    def __init__(self, cluster: RealCluster, names: Mapping[str, str]) -> None:
        """Makes the checkout and starts the registry.

        Args:
            names: what stands for the words of the pages that everybody has a value of their own
                for, such as NODE; `REGISTRY` is one already.
        """
        self._cluster = cluster
        self._names = {"REGISTRY": REGISTRY, **names}
        self.typed: set[Command] = set()
        self.checkout = cluster.base / "checkout"
        shutil.copytree(ROOT, self.checkout, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        for shared in (".venv", "build"):
            (self.checkout / shared).symlink_to(ROOT / shared)
        self._env = self._environment()
        settings = cluster.inside("/etc/containers")
        settings.mkdir(exist_ok=True)
        (settings / "registries.conf").write_text(_INSECURE)
        cluster.start_process(
            "registry", ["crane", "registry", "serve", f"--address={REGISTRY}"], self._env
        )
        wait_until(
            lambda: cluster.order("get", url=f"http://{REGISTRY}/v2/")["status"] == 200,
            "the registry answers",
        )

    def _environment(self) -> dict[str, str]:
        cluster = self._cluster
        programs = cluster.base / "programs"
        programs.mkdir()
        for name, program in {
            "crane": CRANE.build() / "crane",
            "helm": helm_program(),
            "ctr": cluster.containerd / "ctr",
            "kubectl": cluster.kubernetes.programs / "kubectl",
        }.items():
            (programs / name).symlink_to(program)
        stand_in_agents.plugin(programs / "plugin")
        path = (programs, programs / "plugin", Path(sys.executable).parent, cluster.env["PATH"])
        return cluster.env | {
            "PATH": ":".join(map(str, path)),
            "KUBECONFIG": str(cluster.admin),
            "CONTAINERD_ADDRESS": "/run/containerd/containerd.sock",
        }

    def type(self, command: Command) -> str:
        """Types a command of a page; returns what it prints.

        Raises:
            AssertionError: it fails, with all that it printed.
        """
        self.typed.add(command)
        words = "|".join(self._names)
        text = re.sub(rf"\b({words})\b(?!:)", lambda found: self._names[found[1]], command.text)
        return self.type_text(text)

    def type_text(self, text: str) -> str:
        """Types something that no page has; otherwise as `type`."""
        argv = ["bash", "-c", f"cd {self.checkout} && {text}"]
        done = self._cluster.order("run", argv=argv, env=self._env, timeout=_COMMAND_S)
        assert done["status"] == 0, f"{text}\n{done['out']}\n{done['err']}"
        return str(done["out"])
