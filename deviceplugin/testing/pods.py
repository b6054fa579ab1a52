"""Pod manifests, read as they are: the part of a v1 Pod that matters to devices and a runtime.

Only what the stand-in acts on is kept; other valid fields of a pod are accepted and left alone, as
a node leaves alone what is addressed to others. Extended resources must be whole numbers, and a
request must equal its limit, as the API server would insist.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from libvgpu.errors import UsageError


@dataclass(frozen=True, slots=True)
class ContainerManifest:
    """One container of a pod.

    Attributes:
        name: unique within its pod.
        image: as written.
        command: replaces the image's entry point; may be empty.
        args: appended to the command.
        env: name to literal value.
        limits: extended resource (``domain/name``) to whole units; native resources are left out.
        run_as_user: numeric user, None for the image's.
        run_as_group: numeric group, None for the image's.
        sidecar: an init container with ``restartPolicy: Always``, which runs with the others.
    """

    name: str
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    run_as_user: int | None = None
    run_as_group: int | None = None
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PodManifest:
    """One pod; ``source`` is the file it came from, for messages."""

    name: str
    containers: tuple[ContainerManifest, ...]
    namespace: str = "default"
    init_containers: tuple[ContainerManifest, ...] = ()
    host_ipc: bool = False
    restart_policy: str = "Always"
    source: str = ""


def read_pod(path: Path) -> PodManifest:
    """Reads one pod manifest.

    Raises:
        UsageError: the file cannot be read, is not one v1 Pod, or asks for part of a device.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} cannot be read as a pod manifest: {reason}") from error
    try:
        return parse_pod(document, str(path))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{path} is not a pod manifest ({type(error).__name__}: {error}): "
            "give one v1 Pod with metadata.name and spec.containers"
        ) from error


def parse_pod(document: Any, source: str = "") -> PodManifest:
    """Returns the pod of a decoded manifest.

    Raises:
        UsageError: it is not a v1 Pod, or asks for part of a device.
    """
    kind = (document.get("apiVersion"), document.get("kind"))
    if kind != ("v1", "Pod"):
        raise UsageError(f"{source} holds {kind[1]!r} of {kind[0]!r}: only a Pod of 'v1' is taken")
    metadata, spec = document["metadata"], document["spec"]
    security = spec.get("securityContext") or {}
    if not spec["containers"]:
        raise UsageError(f"{source} has no containers: give at least one")
    return PodManifest(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        containers=tuple(_container(c, security, source) for c in spec["containers"]),
        init_containers=tuple(
            replace(_container(c, security, source), sidecar=c.get("restartPolicy") == "Always")
            for c in spec.get("initContainers") or ()
        ),
        host_ipc=bool(spec.get("hostIPC", False)),
        restart_policy=spec.get("restartPolicy", "Always"),
        source=source,
    )


def _container(entry: Any, pod_security: Any, source: str) -> ContainerManifest:
    security = {**pod_security, **(entry.get("securityContext") or {})}
    resources = entry.get("resources") or {}
    env = {}
    for variable in entry.get("env") or ():
        if "valueFrom" in variable:
            raise UsageError(
                f"{source}: env {variable['name']!r} uses valueFrom, which the stand-in does not "
                "resolve: give a literal value"
            )
        env[variable["name"]] = str(variable.get("value", ""))
    return ContainerManifest(
        name=entry["name"],
        image=entry.get("image", ""),
        command=tuple(str(word) for word in entry.get("command") or ()),
        args=tuple(str(word) for word in entry.get("args") or ()),
        env=env,
        limits=_extended(resources, f"{source}: container {entry['name']!r}"),
        run_as_user=security.get("runAsUser"),
        run_as_group=security.get("runAsGroup"),
    )


def _extended(resources: Any, where: str) -> dict[str, int]:
    limits = {}
    for name, quantity in (resources.get("limits") or {}).items():
        if "/" not in name:
            continue  # cpu, memory and their like are not devices
        text = str(quantity)
        if not text.isdecimal():
            raise UsageError(
                f"{where} asks for {text!r} of {name}: devices are counted, give a whole number"
            )
        limits[name] = int(text)
    for name, quantity in (resources.get("requests") or {}).items():
        if "/" in name and str(quantity) != str(limits.get(name)):
            raise UsageError(
                f"{where} requests {quantity} of {name} but its limit is {limits.get(name)}: "
                "for devices both must be the same"
            )
    return limits
