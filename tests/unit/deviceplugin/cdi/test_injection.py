"""The spec on disk: written, kept, left to others, and checked before a container starts."""

import json
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from deviceplugin.cdi.injection import NodeInjection
from deviceplugin.cdi.node_driver import NodeDriver
from deviceplugin.cdi.strategy import RuntimeFacts
from deviceplugin.cdi.trees import NodeRoot, Tree
from deviceplugin.log import LOGGER, KeyValueFormatter
from deviceplugin.model.device_forms import DeviceForms, IdStrategy, ListStrategy
from deviceplugin.model.gpus import Gpu, MigPart
from libvgpu.errors import VgpuError

KIND = "k8s.device-plugin.nvidia.com/gpu"
FILE = "run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
ONE = Gpu(0, "GPU-aa", "test", 1, minor=0, driver="535.1")
TWO = Gpu(1, "GPU-bb", "test", 1, minor=1)
LIB = f"usr/lib/{os.uname().machine}-linux-gnu"
CONTAINERD_2 = RuntimeFacts("containerd", (2, 1))
FORMS = DeviceForms((ListStrategy.CDI_CRI,))


class Node:
    """A node in a directory, with a driver whose module is loaded."""

    def __init__(self, root: Path) -> None:
        self.root, self.facts = root, CONTAINERD_2
        (root / "run").mkdir()
        (root / "var").mkdir()
        (root / "var/run").symlink_to("/run")
        self.put("proc/driver/nvidia/version")
        for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
            self.put(f"dev/{name}")
        self.install("535.1")

    @property
    def file(self) -> Path:
        return self.root / FILE

    def put(self, name: str, text: str = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def install(self, version: str) -> None:
        for old in (self.root / LIB).glob("lib*") if (self.root / LIB).is_dir() else ():
            old.unlink()
        for name in ("cuda", "nvidia-ml"):
            self.put(f"{LIB}/lib{name}.so.{version}")
            (self.root / LIB / f"lib{name}.so.1").symlink_to(f"lib{name}.so.{version}")

    def injection(
        self, forms: DeviceForms = FORMS, gpus: Sequence[Gpu] = (ONE, TWO), is_seen: bool = True
    ) -> NodeInjection:
        root = NodeRoot(Tree(str(self.root)), is_seen)
        driver = NodeDriver(forms, root, {}, self.root / "proc")
        return NodeInjection(forms, driver, gpus, lambda: self.facts, os.uname().machine)

    def names(self) -> set[str]:
        return {device["name"] for device in json.loads(self.file.read_text())["devices"]}

    def others(self, name: str, *devices: str, mount: str = "") -> Path:
        """A spec of somebody else's, in YAML as theirs are."""
        edits = f"{{mounts: [{{hostPath: {mount}, containerPath: /x}}]}}" if mount else "{}"
        listed = "".join(
            f"- name: '{each}'\n  containerEdits: {{env: [A=B]}}\n" for each in devices
        )
        text = f"cdiVersion: 0.5.0\nkind: {KIND}\ncontainerEdits: {edits}\ndevices:\n{listed}"
        return self.put(name, text)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Gives the log as the agent writes it."""
    caplog.set_level(logging.INFO, LOGGER.name)
    formatter = KeyValueFormatter()
    return lambda: "\n".join(map(formatter.format, caplog.records))


# ---- the file ------------------------------------------------------------------------------------


def test_the_spec_is_written_where_the_runtime_looks(node: Node) -> None:
    node.injection().look((ONE, TWO))

    content = json.loads(node.file.read_text())
    assert content["kind"] == KIND
    assert node.names() == {"GPU-aa", "0", "GPU-bb", "1", "all"}
    assert node.file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in node.file.parent.iterdir()] == [node.file.name]


def test_a_spec_that_is_the_same_is_not_written_again(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE, TWO))
    before = node.file.stat()

    injection.look((ONE, TWO))
    node.injection().look((ONE, TWO))  # of an agent that started again

    assert (node.file.stat().st_ino, node.file.stat().st_mtime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
    )


def test_kind_and_directory_are_the_configs(node: Node) -> None:
    forms = replace(FORMS, cdi_kind="nvidia.com/gpu", cdi_spec_dir="/etc/cdi")

    node.injection(forms).look((ONE,))

    content = json.loads((node.root / "etc/cdi/nvidia.com-gpu.json").read_text())
    assert content["kind"] == "nvidia.com/gpu"


def test_nothing_is_written_for_other_forms(node: Node) -> None:
    injection = node.injection(DeviceForms())

    injection.look((ONE,))
    injection.check(["GPU-aa"])

    assert not node.file.parent.exists()


def test_a_spec_stays_while_the_driver_is_away(node: Node) -> None:
    """A driver container that starts again takes its root away for a while."""
    injection = node.injection()
    injection.look((ONE,))
    before = node.file.read_text()
    for path in (node.root / LIB).iterdir():
        path.unlink()

    injection.look((ONE,))

    assert node.file.read_text() == before
    assert "libcuda.so.1 is not found" in injection.shown().problems[0]


def test_a_directory_that_cannot_be_written_is_one_sentence(node: Node) -> None:
    node.put("run/cdi", "a file in its place")

    with pytest.raises(VgpuError, match=r"the CDI spec /var/run/cdi/\S+ cannot be written: \w+"):
        node.injection().look((ONE,))


def test_libraries_of_another_driver_than_the_running_one_are_said(
    node: Node, said: Callable[[], str]
) -> None:
    node.install("580.2")
    injection = node.injection()

    injection.look((ONE,))
    injection.look((ONE,))

    (problem,) = injection.shown().problems
    assert "of driver 580.2 while 535.1 runs" in problem
    assert said().count("of driver 580.2 while 535.1 runs") == 1


# ---- next to somebody else's ---------------------------------------------------------------------


def test_a_spec_of_somebody_else_is_used_and_not_contradicted(node: Node) -> None:
    """A runtime refuses a device that two specs of one directory have."""
    node.others("run/cdi/nvidia.yaml", "GPU-aa", "GPU-bb", "0", "1", "all")
    injection = node.injection()

    injection.look((ONE, TWO))

    assert not node.file.exists()
    injection.check(["GPU-aa"])


def test_ours_has_only_what_theirs_lacks(node: Node) -> None:
    node.others("run/cdi/nvidia.yaml", "0", "1", "all")

    node.injection().look((ONE, TWO))

    assert node.names() == {"GPU-aa", "GPU-bb"}


def test_ours_goes_when_theirs_comes_and_comes_when_theirs_goes(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE, TWO))
    theirs = node.others("run/cdi/nvidia.yaml", "GPU-aa", "GPU-bb", "0", "1", "all")

    injection.look((ONE, TWO))
    assert not node.file.exists()

    theirs.unlink()
    injection.look((ONE, TWO))
    assert node.file.exists()


def test_specs_of_other_kinds_and_broken_ones_do_not_matter(node: Node) -> None:
    node.put("run/cdi/a.json", json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "0"}]}))
    node.put("run/cdi/b.yaml", "{")
    node.put("run/cdi/c.json", "[1]")
    node.put("run/cdi/d.txt", f"kind: {KIND}\ndevices: [{{name: '0'}}]")

    node.injection().look((ONE,))

    assert "0" in node.names()


# ---- before a container starts -------------------------------------------------------------------


def test_a_start_puts_the_spec_back(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE,))
    node.file.unlink()

    injection.check(["GPU-aa"])

    assert "GPU-aa" in node.names()


def test_a_gpu_that_no_spec_has_is_refused(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE,))

    with pytest.raises(VgpuError, match=rf"no CDI spec in /var/run/cdi has {KIND}=GPU-cc, so"):
        injection.check(["GPU-cc"])


def test_a_node_without_a_driver_is_refused_with_the_reason(node: Node) -> None:
    for path in (node.root / LIB).iterdir():
        path.unlink()

    with pytest.raises(VgpuError, match=r"would not get its GPU: .*libcuda.so.1 is not found"):
        node.injection().check(["GPU-aa"])


@pytest.mark.parametrize("name", ["nvidia0", "nvidiactl", "nvidia-uvm"])
def test_a_missing_device_node_is_refused(node: Node, name: str) -> None:
    injection = node.injection()
    injection.look((ONE, TWO))
    (node.root / "dev" / name).unlink()

    with pytest.raises(VgpuError, match=f"needs /dev/{name}, which is not on this node"):
        injection.check(["GPU-aa"])


def test_another_gpus_missing_node_does_not_matter(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE, TWO))
    (node.root / "dev/nvidia1").unlink()

    injection.check(["GPU-aa"])


def test_a_simulated_gpu_has_no_nodes_to_miss(node: Node) -> None:
    (node.root / "proc/driver/nvidia/version").unlink()
    for path in (node.root / "dev").iterdir():
        path.unlink()
    injection = node.injection()

    injection.look((ONE,))

    injection.check(["GPU-aa"])


def test_a_driver_replaced_a_moment_ago_is_no_reason(node: Node) -> None:
    injection = node.injection()
    injection.look((ONE,))
    node.install("580.2")

    injection.check(["GPU-aa"])

    assert "libcuda.so.580.2" in node.file.read_text()


def test_a_stale_spec_of_somebody_else_is_refused(node: Node) -> None:
    node.others("run/cdi/nvidia.yaml", "GPU-aa", mount="/usr/lib/libcuda.so.470.1")
    injection = node.injection()
    injection.look((ONE,))

    with pytest.raises(VgpuError, match=r"of /var/run/cdi/nvidia.yaml needs /usr/lib/libcuda\S+"):
        injection.check(["GPU-aa"])


def test_a_spec_in_the_static_directory_serves_too(node: Node) -> None:
    node.others("etc/cdi/nvidia.yaml", "GPU-zz")

    node.injection().check(["GPU-zz"])


def test_names_by_index_are_checked_as_such(node: Node) -> None:
    part = Gpu(0, "MIG-1", "t", 1, mig=MigPart("GPU-aa", 1, "1g.5gb", 7, 0))
    cut = replace(ONE, is_mig_enabled=True, mig_devices=(part,))
    node.others("run/cdi/nvidia.yaml", "0:1")
    injection = node.injection(replace(FORMS, ids=IdStrategy.INDEX), (cut, TWO))
    injection.look((cut, TWO))

    injection.check(["MIG-1", "GPU-bb"])


def test_a_runtime_that_drops_names_is_refused(node: Node) -> None:
    node.facts = RuntimeFacts("containerd", (1, 6))
    injection = node.injection()
    injection.look((ONE,))

    with pytest.raises(VgpuError, match=r"containerd 1.6 on this node drops CDI names"):
        injection.check(["GPU-aa"])


def test_a_node_that_is_not_seen_is_not_judged(node: Node) -> None:
    node.others("run/cdi/nvidia.yaml", "GPU-aa", mount="/usr/lib/libcuda.so.470.1")

    node.injection(is_seen=False).check(["GPU-aa"])


# ---- auto ----------------------------------------------------------------------------------------

AUTO = DeviceForms((ListStrategy.AUTO,))


def test_auto_says_once_what_it_chose(node: Node, said: Callable[[], str]) -> None:
    injection = node.injection(AUTO)
    for _ in range(30):
        injection.look((ONE,))

    assert injection.forms.lists == (ListStrategy.CDI_CRI,)
    assert said().count("device list strategy chosen") == 1
    assert 'strategy=cdi-cri because="containerd 2.1 does CDI"' in said()
    shown = injection.shown()
    assert shown.lists == ("cdi-cri",)
    assert shown.spec == f"/var/{FILE}"
    assert shown.problems == ()
    assert node.file.exists()


def test_auto_does_not_choose_cdi_without_a_driver_to_be_seen(node: Node) -> None:
    for path in (node.root / LIB).iterdir():
        path.unlink()

    assert node.injection(AUTO).forms.lists == (ListStrategy.ENVVAR,)


def test_auto_does_not_choose_cdi_without_seeing_the_node(node: Node) -> None:
    """A spec would be written into the agent's own container."""
    seen_driver = replace(AUTO, container_driver_root=str(node.root))

    found = node.injection(seen_driver, is_seen=False)

    assert found.forms.lists == (ListStrategy.ENVVAR,)
    assert "does not see the node's root" in found.shown().because


def test_a_runtime_that_changes_is_said(node: Node, said: Callable[[], str]) -> None:
    injection = node.injection(AUTO)
    node.facts = RuntimeFacts("containerd", (1, 6))
    for _ in range(30):
        injection.look((ONE,))

    assert said().count("container runtime has changed") == 1
    assert any("restart the agent" in each for each in injection.shown().problems)
    assert injection.forms.lists == (ListStrategy.CDI_CRI,)


def test_with_both_forms_a_start_is_not_held_up_by_cdi(node: Node) -> None:
    node.facts = RuntimeFacts()
    injection = node.injection(AUTO)
    assert injection.forms.lists == (ListStrategy.ENVVAR, ListStrategy.CDI_CRI)

    injection.check(["GPU-cc"])
