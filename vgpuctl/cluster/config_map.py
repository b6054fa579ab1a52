"""The ConfigMap that has the agents' config: which of its texts is meant, and how it is changed.

Pure. A change names the version that was read, so that nobody's change of meanwhile is lost.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import msgspec

from libvgpu.decoding import json_decoder
from libvgpu.errors import AllocationRefused, UsageError, VgpuError

NAME = "vgpu-config"  # as the chart has it


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] = {}


class _ConfigMap(msgspec.Struct):
    metadata: _Meta
    data: dict[str, str] = {}


_CONFIG_MAP = json_decoder(_ConfigMap)


@dataclass(frozen=True, slots=True)
class ConfigText:
    """One config of the ConfigMap.

    Attributes:
        key: its name there.
        is_one_of_several: nodes have it that chose it by its name.
        version: of the ConfigMap.
        is_helms: an upgrade by Helm writes it again.
    """

    key: str
    text: str
    is_one_of_several: bool
    version: str
    is_helms: bool

    def change(self, text: str) -> str:
        """Returns what is merged into the ConfigMap for it to have another text."""
        return json.dumps({"metadata": {"resourceVersion": self.version}, "data": {self.key: text}})


def path(namespace: str, name: str) -> str:
    """Returns where the API server has it."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"


def config_text(content: bytes, key: str | None, name: str) -> ConfigText:
    """Returns a config of a ConfigMap.

    Args:
        key: which; None where there is but one.
        name: of the ConfigMap, for messages.

    Raises:
        UsageError: it has several, and none is named.
        AllocationRefused: it has none of that name.
        VgpuError: it is no ConfigMap.
    """
    try:
        found = _CONFIG_MAP.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise VgpuError(f"the API server does not answer with a ConfigMap: {error}") from None
    there = ", ".join(sorted(found.data)) or "none"
    if key is None and len(found.data) != 1:
        raise UsageError(
            f"ConfigMap {name} has several configs: name one with --config; there are: {there}"
            if found.data
            else f"ConfigMap {name} has no config"
        )
    chosen = next(iter(found.data)) if key is None else key
    if chosen not in found.data:
        raise AllocationRefused(f"ConfigMap {name} has no config {chosen}; there are: {there}")
    return ConfigText(
        chosen,
        found.data[chosen],
        len(found.data) > 1,
        found.metadata.resource_version,
        found.metadata.labels.get("app.kubernetes.io/managed-by") == "Helm",
    )


class _LabelledMeta(msgspec.Struct):
    name: str
    labels: dict[str, str] = {}


class _Labelled(msgspec.Struct):
    metadata: _LabelledMeta


class _LabelledPods(msgspec.Struct):
    items: list[_Labelled]


_LABELLED_PODS = json_decoder(_LabelledPods)


def pods_path(namespace: str) -> str:
    """Returns where the API server lists the pods of a namespace."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"


def labels_of(content: bytes) -> Mapping[str, Mapping[str, str]]:
    """Returns the labels of each pod of a list, by its name.

    Raises:
        VgpuError: it is no list of pods.
    """
    try:
        pods = _LABELLED_PODS.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise VgpuError(f"the API server does not answer with a list of pods: {error}") from None
    return {each.metadata.name: each.metadata.labels for each in pods.items}
