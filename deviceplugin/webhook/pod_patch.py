"""What is added to a pod that asks for GPUs. Pure.

The same as the chart's MutatingAdmissionPolicy does, in the same order; a pod's own tolerations,
labels, runtime class and scheduler stay. A patched pod needs no further patch, so it may be sent
again.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Json = Mapping[str, Any]
#: What an API server writes into a pod that names no scheduler.
_DEFAULT_SCHEDULER = "default-scheduler"
_TOLERATION = {"key": "", "operator": "Equal", "value": "", "effect": ""}


class PodRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What pods are given.

    Attributes:
        resources: a container that has one of these among its limits asks for GPUs; a name that
            ends with ``*`` is the beginning of names.
        tolerations: as a pod has them.
        runtime_class_name: empty to set none.
        scheduler_name: for pods that leave it to the default one; empty to leave them there.
        marker_resource: put into the limits with 0, empty for none.
    """

    resources: tuple[str, ...]
    tolerations: tuple[dict[str, Any], ...] = ()
    runtime_class_name: str = ""
    scheduler_name: str = ""
    labels: dict[str, str] = {}
    marker_resource: str = ""


def patch(pod: Json, rules: PodRules) -> list[dict[str, Any]]:
    """Returns the operations of a JSON patch (RFC 6902), none for a pod that asks for no GPU.

    Args:
        pod: as JSON has it.
    """
    spec = _mapping(pod, "spec")
    containers = _mappings(spec, "containers")
    asking = [i for i, each in enumerate(containers) if _asks(each, rules)]
    if not asking and not any(_asks(each, rules) for each in _mappings(spec, "initContainers")):
        return []
    return [
        *_tolerations(spec, rules),
        *_runtime_class(spec, rules),
        *_scheduler(spec, rules),
        *_labels(_mapping(pod, "metadata"), rules),
        *_marks(asking, rules),
    ]


def _asks(container: Json, rules: PodRules) -> bool:
    limits = _mapping(_mapping(container, "resources"), "limits")
    return any(
        name == wanted or (wanted.endswith("*") and name.startswith(wanted[:-1]))
        for name in limits
        for wanted in rules.resources
    )


def _tolerations(spec: Json, rules: PodRules) -> Iterator[dict[str, Any]]:
    there = _mappings(spec, "tolerations")
    missing = [t for t in rules.tolerations if not any(_same(t, other) for other in there)]
    if missing and spec.get("tolerations") is None:
        yield _add([], "spec", "tolerations")
    for each in missing:
        yield _add(each, "spec", "tolerations", "-")


def _same(one: Json, other: Json) -> bool:
    return all((one.get(k) or d) == (other.get(k) or d) for k, d in _TOLERATION.items())


def _runtime_class(spec: Json, rules: PodRules) -> Iterator[dict[str, Any]]:
    if rules.runtime_class_name and spec.get("runtimeClassName") is None:
        yield _add(rules.runtime_class_name, "spec", "runtimeClassName")


def _scheduler(spec: Json, rules: PodRules) -> Iterator[dict[str, Any]]:
    if (
        rules.scheduler_name not in ("", _DEFAULT_SCHEDULER)
        and spec.get("schedulerName", _DEFAULT_SCHEDULER) == _DEFAULT_SCHEDULER
    ):
        yield _add(rules.scheduler_name, "spec", "schedulerName")


def _labels(metadata: Json, rules: PodRules) -> Iterator[dict[str, Any]]:
    if rules.labels and metadata.get("labels") is None:
        yield _add({}, "metadata", "labels")
    for name, value in sorted(rules.labels.items()):
        if name not in _mapping(metadata, "labels"):
            yield _add(value, "metadata", "labels", name)


def _marks(asking: list[int], rules: PodRules) -> Iterator[dict[str, Any]]:
    for i in asking if rules.marker_resource else ():
        where = ("spec", "containers", str(i), "resources", "limits", rules.marker_resource)
        yield _add("0", *where)


def _add(value: object, *path: str) -> dict[str, Any]:
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
    return {"op": "add", "path": pointer, "value": value}


def _mapping(of: Json, name: str) -> Json:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _mappings(of: Json, name: str) -> list[Json]:
    found = of.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
