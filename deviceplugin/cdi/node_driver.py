"""Where this node's driver is, its device nodes and NVIDIA's hook: what a spec is made of.

Looks at the node each time it is asked, so that a change of driver shows. Keeps nothing.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.model.device_forms import DeviceForms, Feature

from .driver_files import DriverFiles, find_driver_files, library_directories
from .mig_minors import MIG_MINORS, parse_mig_minors
from .spec import CONTROL_NODE, NodeDevices
from .trees import NodeRoot, Tree

SIMULATED_MACHINE = "VGPU_SIM_MACHINE"
#: Where the GPU Operator's driver container has its root on the node.
_OPERATORS_DRIVER = "/run/nvidia/driver"
#: NVIDIA's hook as packages, the GPU Operator's toolkit and hand-made installs put it.
_HOOKS = tuple(
    f"{directory}/{name}"
    for directory in ("/usr/bin", "/usr/local/nvidia/toolkit", "/usr/local/bin")
    for name in ("nvidia-cdi-hook", "nvidia-ctk")
)
#: Nodes of what the config can ask for in addition, by directory.
_FEATURE_NODES = {
    Feature.GDRCOPY: ("/dev", re.compile(r"gdrdrv")),
    Feature.GDS: ("/dev", re.compile(r"nvidia-fs\d*")),
    Feature.MOFED: ("/dev/infiniband", re.compile(r"uverbs\d+|rdma_cm")),
}
_IMEX_DIRECTORY = "/dev/nvidia-caps-imex-channels"
_LOADED = re.compile(r"/\S*/lib(?:cuda|nvidia-ml)\.so\.\S+$", re.M)


@dataclass(frozen=True, slots=True)
class NodeDriver:
    """Looks for the driver of this node.

    Attributes:
        forms: the config's word on roots and hook.
        node: the node's root.
        environ: the agent's environment, which says whether its machine is simulated.
        proc: where the kernel's ``/proc`` is.
        exists: whether a path of the agent's own is there.
    """

    forms: DeviceForms
    node: NodeRoot
    environ: Mapping[str, str]
    proc: Path = Path("/proc")
    exists: Callable[[str], bool] = os.path.exists

    @property
    def simulated(self) -> str:
        """The directory of the simulated machine; empty with a real driver."""
        return self.environ.get(SIMULATED_MACHINE, "")

    def files(self) -> DriverFiles | None:
        """Returns the driver's libraries and tools, None where there are none to be seen."""
        for tree, directories in self._places():
            found = find_driver_files(tree, directories)
            if found is not None:
                return found
        return None

    def devices(self) -> NodeDevices:
        """Returns what is known of device nodes."""
        trees = {root: self._device_tree(root) for root in (self.forms.dev_root, "/")}
        with_nodes = (root for root, tree in trees.items() if tree.exists(CONTROL_NODE))
        root = next(with_nodes, self.forms.dev_root)
        return NodeDevices(
            root,
            trees[root].exists,
            not self.simulated and self.exists(str(self.proc / "driver/nvidia/version")),
            parse_mig_minors(self._proc_text(MIG_MINORS.removeprefix("/proc/"))),
            tuple(self._more_nodes(trees[root])),
        )

    def hook(self) -> str:
        """Returns the path on the node of NVIDIA's hook, empty where it has none."""
        named = self.forms.hook_path
        if not self.node.is_seen:
            return named
        tree = self.node.tree
        return next((path for path in (named, *_HOOKS) if path and tree.exists(path)), "")

    def _more_nodes(self, tree: Tree) -> Iterator[str]:
        for feature in self.forms.features:
            directory, pattern = _FEATURE_NODES[feature]
            for name in tree.names(directory):
                if pattern.fullmatch(name):
                    yield f"{directory}/{name}"
        there = tree.names(_IMEX_DIRECTORY) if self.forms.imex_channels else []
        for number in self.forms.imex_channels:
            if f"channel{number}" in there:
                yield f"{_IMEX_DIRECTORY}/channel{number}"

    def _places(self) -> Iterator[tuple[Tree, list[str]]]:
        own = Tree()
        if self.simulated:
            yield own, self._loaded()
            return
        machine = os.uname().machine
        trees = [self.node.tree.below(self.forms.driver_root)] if self.node.is_seen else []
        if self.forms.container_driver_root:
            trees.insert(0, Tree(self.forms.container_driver_root, self.forms.driver_root))
        if self.node.is_seen and self.forms.driver_root == "/":
            trees.append(self.node.tree.below(_OPERATORS_DRIVER))
        for tree in trees:
            yield tree, library_directories(tree, machine)
        if self.node.is_seen and self.node.tree == own:
            yield own, self._loaded()

    def _loaded(self) -> list[str]:
        """Returns the directories of NVIDIA's libraries that this very process has loaded."""
        found = _LOADED.findall(self._proc_text("self/maps"))
        return list(dict.fromkeys(map(os.path.dirname, found)))

    def _device_tree(self, root: str) -> Tree:
        given = self.forms.container_driver_root
        if given and root == self.forms.dev_root and self.exists(f"{given.rstrip('/')}/dev"):
            return Tree(given, root)
        return self.node.tree.below(root)

    def _proc_text(self, name: str) -> str:
        try:
            return (self.proc / name).read_text(errors="replace")
        except OSError:
            return ""
