"""What the files of a node say of its container runtime: containerd, CRI-O, NVIDIA's runtime.

Reads below the node's root only. What cannot be read or understood counts as not said; the agent
never fails for it.
"""

import fnmatch
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from libvgpu.errors import ConfigError
from libvgpu.yamltext import parse

from .strategy import (
    CONTAINERD,
    CRIO,
    DEFAULT_SPEC_DIRECTORIES,
    DOCKER,
    RuntimeFacts,
    parse_version,
)
from .trees import NodeRoot, Tree

#: containerd's own, and where distributions of Kubernetes that bring it along have theirs.
_CONTAINERD_FILES = (
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/etc/k0s/containerd.toml",
    "/etc/containerd/config.toml",
)
_CRIO_FILE, _CRIO_DIRECTORY = "/etc/crio/crio.conf", "/etc/crio/crio.conf.d"
_NVIDIA_FILES = (
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
    "/etc/nvidia-container-runtime/config.toml",
)
_KUBELET_FILES = ("/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet/kubelet-config.json")
#: Of containerd's config versions 3 and later, 2, and 1.
_CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_SOCKETS = {
    CONTAINERD: ("/run/containerd/containerd.sock", "/run/k3s/containerd/containerd.sock"),
    CRIO: ("/run/crio/crio.sock",),
}
_NVIDIA_PROGRAM = re.compile(r"nvidia-container-runtime(\.(cdi|legacy|experimental))?")
_MOST_IMPORTS = 64


def read_facts(
    node: NodeRoot, runtime_version: str = "", kubelet_version: str = ""
) -> RuntimeFacts:
    """Returns what is known of the node's container runtime.

    Args:
        runtime_version: as the kubelet reports it of its Node, ``containerd://2.1.4``; empty where
            nobody tells.
        kubelet_version: the same, ``v1.33.2``.
    """
    name, _, version = runtime_version.partition("://")
    tree = node.tree
    facts = RuntimeFacts(
        name=name if name in (CONTAINERD, CRIO, DOCKER) else _name(node),
        version=parse_version(version),
        kubelet_version=parse_version(kubelet_version),
    )
    if not node.is_seen:
        return facts
    if facts.name == CONTAINERD:
        facts = _containerd(tree, facts)
    elif facts.name == CRIO:
        facts = _crio(tree, facts)
    for path in _NVIDIA_FILES:
        config = _toml(tree, path)
        if config is not None:
            return replace(
                facts,
                takes_mounts=config.get("accept-nvidia-visible-devices-as-volume-mounts") is True,
                takes_variable=(
                    config.get("accept-nvidia-visible-devices-envvar-when-unprivileged")
                    is not False
                ),
            )
    return facts


def _name(node: NodeRoot) -> str:
    """Returns which runtime the kubelet uses, as its config says or as only one is there."""
    if not node.is_seen:
        return ""
    for path in _KUBELET_FILES:
        try:
            config, _ = parse(node.tree.text(path) or "", path)
        except ConfigError:
            continue
        endpoint = str(config.get("containerRuntimeEndpoint")) if isinstance(config, dict) else ""
        for name, word in ((CONTAINERD, "containerd"), (CRIO, "crio"), (DOCKER, "dockerd")):
            if word in endpoint:
                return name
    there = [name for name, paths in _SOCKETS.items() if any(map(node.tree.exists, paths))]
    return there[0] if len(there) == 1 else ""


def _containerd(tree: Tree, facts: RuntimeFacts) -> RuntimeFacts:
    path = next((each for each in _CONTAINERD_FILES if tree.exists(each)), "")
    if not path:
        return facts
    cri: dict[str, Any] = {}
    is_of_two = False
    for config in _with_imports(tree, path):
        number = config.get("version")
        is_of_two |= isinstance(number, int) and number >= 3
        plugins = _table(config, "plugins")
        for name in _CRI_PLUGINS:
            _merge(cri, _table(plugins, name))
    engine = _table(cri, "containerd")
    handlers = _table(engine, "runtimes")
    setting, directories = cri.get("enable_cdi"), cri.get("cdi_spec_dirs")
    return replace(
        facts,
        # A config of this form is of containerd 2, whoever else tells its version or not.
        version=facts.version or ((2, 0) if is_of_two else None),
        source=path,
        cdi_setting=setting if isinstance(setting, bool) else None,
        spec_directories=_strings(directories, DEFAULT_SPEC_DIRECTORIES),
        nvidia_handlers=tuple(
            sorted(
                name
                for name in handlers
                if _is_nvidia(str(_table(_table(handlers, name), "options").get("BinaryName", "")))
            )
        ),
        default_handler=str(engine.get("default_runtime_name") or "runc"),
    )


def _with_imports(tree: Tree, path: str) -> Iterator[Mapping[str, Any]]:
    """Gives a config and what it imports, each once; what comes later counts."""
    waiting, seen = [path], set[str]()
    while waiting and len(seen) < _MOST_IMPORTS:
        path = waiting.pop(0)
        config = None if path in seen else _toml(tree, path)
        seen.add(path)
        if config is None:
            continue
        yield config
        for pattern in _strings(config.get("imports"), ()):
            whole = os.path.normpath(os.path.join(os.path.dirname(path), pattern))
            directory, name = os.path.split(whole)
            waiting += [
                f"{directory}/{each}"
                for each in tree.names(directory)
                if fnmatch.fnmatchcase(each, name)
            ]


def _crio(tree: Tree, facts: RuntimeFacts) -> RuntimeFacts:
    runtime: dict[str, Any] = {}
    source = ""
    names = [f"{_CRIO_DIRECTORY}/{name}" for name in tree.names(_CRIO_DIRECTORY)]
    for path in (_CRIO_FILE, *names):
        config = _toml(tree, path)
        if config is not None:
            source = path
            _merge(runtime, _table(_table(config, "crio"), "runtime"))
    handlers = _table(runtime, "runtimes")
    return replace(
        facts,
        source=source,
        spec_directories=_strings(runtime.get("cdi_spec_dirs"), DEFAULT_SPEC_DIRECTORIES),
        nvidia_handlers=tuple(
            sorted(
                name
                for name in handlers
                if _is_nvidia(str(_table(handlers, name).get("runtime_path", "")))
            )
        ),
        default_handler=str(runtime.get("default_runtime") or ""),
    )


def _is_nvidia(program: str) -> bool:
    return _NVIDIA_PROGRAM.fullmatch(os.path.basename(program)) is not None


def _toml(tree: Tree, path: str) -> dict[str, Any] | None:
    text = tree.text(path)
    try:
        return None if text is None else tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _table(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = config.get(key)
    return found if isinstance(found, Mapping) else {}


def _strings(value: Any, default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else default


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        known = into.get(key)
        if isinstance(value, Mapping):
            merged = dict(known) if isinstance(known, Mapping) else {}
            _merge(merged, value)
            into[key] = merged
        else:
            into[key] = value
