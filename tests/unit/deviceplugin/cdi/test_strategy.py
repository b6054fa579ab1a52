"""Which form of answer ``deviceListStrategy: auto`` chooses, from the node's own files."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from deviceplugin.cdi.runtime_files import read_facts
from deviceplugin.cdi.strategy import Choice, cannot_inject, choose, parse_version
from deviceplugin.cdi.trees import NodeRoot, Tree
from deviceplugin.model.device_forms import ListStrategy

ENVVAR, MOUNTS = ListStrategy.ENVVAR, ListStrategy.VOLUME_MOUNTS
ANNOTATIONS, CRI = ListStrategy.CDI_ANNOTATIONS, ListStrategy.CDI_CRI
CONTAINERD = "etc/containerd/config.toml"
V2 = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
V2_ENGINE = '[plugins."io.containerd.grpc.v1.cri".containerd]\n'
V3 = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\n"
NVIDIA_V2 = (
    '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]\n'
    'BinaryName = "/usr/bin/nvidia-container-runtime"\n'
)
DEFAULT_V2 = f'{V2}{V2_ENGINE}default_runtime_name = "nvidia"\n{NVIDIA_V2}'
CLASS_V2 = f'{V2}{V2_ENGINE}default_runtime_name = "runc"\n{NVIDIA_V2}'
NVIDIA = "etc/nvidia-container-runtime/config.toml"
BY_MOUNTS = (
    "accept-nvidia-visible-devices-as-volume-mounts = true\n"
    "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n"
)
CRIO_NVIDIA = (
    '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/nvidia-container-runtime"\n'
)


def node(root: Path, files: Mapping[str, str]) -> NodeRoot:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return NodeRoot(Tree(str(root)))


def chosen(
    root: Path,
    files: Mapping[str, str],
    runtime: str = "",
    kubelet: str = "v1.33.0",
    spec_dir: str = "/var/run/cdi",
    obstacle: str = "",
) -> Choice:
    return choose(read_facts(node(root, files), runtime, kubelet), spec_dir, obstacle)


# What a node has, what its kubelet reports, what is chosen, and what the reason says.
TABLE: dict[str, tuple[dict[str, str], str, str, tuple[ListStrategy, ...], str]] = {
    "containerd 2": ({CONTAINERD: V3}, "containerd://2.1.4", "v1.33.0", (CRI,), "containerd 2.1"),
    "containerd 2, no config": ({}, "containerd://2.0.0", "v1.33.0", (CRI,), "containerd 2.0"),
    "containerd 2, told by its config's form": (
        {CONTAINERD: V3, "run/containerd/containerd.sock": ""}, "", "", (CRI,), "containerd 2.0",
    ),
    "containerd 2, CDI off": (
        {CONTAINERD: f"{V3}enable_cdi = false\n"}, "containerd://2.1.4", "v1.33.0", (ENVVAR,),
        "does not do CDI (/etc/containerd/config.toml)",
    ),
    "containerd 1.7, CDI on": (
        {CONTAINERD: f"{V2}enable_cdi = true\n"}, "containerd://1.7.27", "v1.33.0", (CRI,),
        "does CDI (/etc/containerd/config.toml)",
    ),
    "containerd 1.7, CDI off": (
        {CONTAINERD: V2}, "containerd://1.7.27", "v1.33.0", (ENVVAR,), "without a GPU",
    ),
    "containerd 1.6 drops names whatever its config says": (
        {CONTAINERD: f"{V2}enable_cdi = true\n{V2_ENGINE}default_runtime_name = 'nvidia'\n"
                     f"{NVIDIA_V2}"},
        "containerd://1.6.20~ds1", "v1.33.0", (ENVVAR,), "nvidia is NVIDIA's",
    ),
    "an old kubelet": (
        {CONTAINERD: f"{V2}enable_cdi = true\n"}, "containerd://1.7.27", "v1.27.3", (ANNOTATIONS,),
        "kubelet 1.27",
    ),
    "specs elsewhere": (
        {CONTAINERD: f'{V3}cdi_spec_dirs = ["/opt/cdi"]\n'}, "containerd://2.1.4", "v1.33.0",
        (ENVVAR,), "/opt/cdi and not in /var/run/cdi",
    ),
    "specs by the other name of /run": (
        {CONTAINERD: f'{V3}cdi_spec_dirs = ["/etc/cdi", "/run/cdi/"]\n'}, "containerd://2.1.4",
        "v1.33.0", (CRI,), "does CDI",
    ),
    "NVIDIA's runtime is the default": (
        {CONTAINERD: DEFAULT_V2}, "containerd://1.7.27", "v1.33.0", (ENVVAR,),
        "reads NVIDIA_VISIBLE_DEVICES",
    ),
    "NVIDIA's runtime trusts mounts alone": (
        {CONTAINERD: DEFAULT_V2, NVIDIA: BY_MOUNTS}, "containerd://1.7.27", "v1.33.0", (MOUNTS,),
        "not to trust a variable",
    ),
    "NVIDIA's runtime takes either": (
        {CONTAINERD: DEFAULT_V2, NVIDIA: BY_MOUNTS.splitlines()[0]}, "containerd://1.7.27",
        "v1.33.0", (ENVVAR,), "NVIDIA_VISIBLE_DEVICES",
    ),
    "NVIDIA's runtime by a class": (
        {CONTAINERD: CLASS_V2}, "containerd://1.7.27", "v1.33.0", (ENVVAR,), "runtimeClassName",
    ),
    "by an import": (
        {CONTAINERD: 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml", "more.toml"]\n',
         "etc/containerd/conf.d/99-nvidia.toml": DEFAULT_V2,
         "etc/containerd/more.toml": f"{V2}enable_cdi = true\n"},
        "containerd://1.7.27", "v1.33.0", (CRI,), "does CDI",
    ),
    "k3s": (
        {"var/lib/rancher/k3s/agent/etc/containerd/config.toml": DEFAULT_V2},
        "containerd://1.7.27-k3s1", "v1.31.0+k3s1", (ENVVAR,), "nvidia is NVIDIA's",
    ),
    "CRI-O": ({}, "cri-o://1.31.0", "v1.31.0", (CRI,), "cri-o 1.31 does CDI"),
    "CRI-O, told by the kubelet's config": (
        {"var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: unix:///var/run/crio/crio.sock"},
        "", "", (CRI,), "cri-o does CDI",
    ),
    "CRI-O, specs elsewhere, NVIDIA's by default": (
        {"etc/crio/crio.conf.d/10.conf": '[crio.runtime]\ncdi_spec_dirs = ["/opt"]\n',
         "etc/crio/crio.conf.d/99.conf": CRIO_NVIDIA},
        "cri-o://1.31.0", "v1.31.0", (ENVVAR,), "nvidia is NVIDIA's",
    ),
    "Docker": ({}, "docker://25.0.1", "v1.31.0", (ENVVAR,), "docker 25.0 does not do CDI"),
    "nothing known": ({}, "", "", (ENVVAR, CRI), "nothing is known"),
    "two runtimes and nobody says which": (
        {"run/containerd/containerd.sock": "", "run/crio/crio.sock": ""}, "", "", (ENVVAR, CRI),
        "nothing is known",
    ),
    "a config that is not TOML": (
        {CONTAINERD: "version = = 3", NVIDIA: "[", "run/containerd/containerd.sock": ""}, "", "",
        (ENVVAR, CRI), "nothing is known of what containerd injects",
    ),
    "an import of itself": (
        {CONTAINERD: 'version = 3\nimports = ["config.toml"]\n'}, "containerd://2.1.4", "v1.33.0",
        (CRI,), "does CDI",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "runtime", "kubelet", "lists", "words"), TABLE.values(), ids=TABLE.keys()
)
def test_what_a_node_has_decides(
    tmp_path: Path,
    files: dict[str, str],
    runtime: str,
    kubelet: str,
    lists: tuple[ListStrategy, ...],
    words: str,
) -> None:
    choice = chosen(tmp_path, files, runtime, kubelet)

    assert choice.lists == lists
    assert words in choice.because


@pytest.mark.parametrize("runtime", ["containerd://2.1.4", ""])
def test_cdi_is_not_chosen_where_there_would_be_no_spec(tmp_path: Path, runtime: str) -> None:
    """A runtime refuses a container whose name no spec has."""
    choice = chosen(tmp_path, {}, runtime, obstacle="there is no libcuda.so.1")

    assert choice.lists == (ENVVAR,)
    assert "there is no libcuda.so.1" in choice.because


def test_a_runtime_behind_a_class_is_said(tmp_path: Path) -> None:
    assert chosen(tmp_path, {CONTAINERD: CLASS_V2}, "containerd://1.7.1").needs_class == ("nvidia",)
    assert chosen(tmp_path, {CONTAINERD: DEFAULT_V2}, "containerd://1.7.1").needs_class == ()


def test_a_node_that_is_not_seen_tells_nothing(tmp_path: Path) -> None:
    unseen = NodeRoot(node(tmp_path, {CONTAINERD: DEFAULT_V2}).tree, is_seen=False)

    facts = read_facts(unseen)

    assert (facts.name, facts.nvidia_handlers, facts.does_cdi) == ("", (), None)


@pytest.mark.parametrize(
    ("lists", "runtime", "words"),
    [
        ((CRI,), "containerd://1.6.20~ds1", "containerd 1.6 on this node drops CDI names"),
        ((CRI, ANNOTATIONS), "containerd://1.6.20", "cdi-cri and cdi-annotations"),
        ((CRI,), "containerd://2.1.0", ""),
        ((CRI,), "", ""),
        ((ENVVAR, CRI), "containerd://1.6.20", ""),
        ((ENVVAR,), "containerd://1.6.20", ""),
    ],
)
def test_a_runtime_that_drops_names_is_known(
    tmp_path: Path, lists: tuple[ListStrategy, ...], runtime: str, words: str
) -> None:
    found = cannot_inject(lists, read_facts(node(tmp_path, {}), runtime))

    assert words in found
    assert bool(found) == bool(words)


def test_nvidias_runtime_may_read_annotations_that_containerd_does_not(tmp_path: Path) -> None:
    facts = read_facts(node(tmp_path, {CONTAINERD: DEFAULT_V2}), "containerd://1.6.20")

    assert cannot_inject((ANNOTATIONS,), facts) == ""
    assert cannot_inject((CRI,), facts) != ""


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.33.2+k3s1", (1, 33)), ("2.1.4", (2, 1)), ("", None), ("unknown", None)],
)
def test_versions(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version
