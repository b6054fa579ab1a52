"""kube-scheduler's extender calls, version 1 (k8s.io/kube-scheduler/extender/v1): JSON and values.

Pure. The types have no JSON tags, see `go_json`; what is in them (pods, nodes) has. With
``nodeCacheCapable: true`` nodes come by name and go back by name; with false they come whole, and
go back byte for byte.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from deviceplugin.kube.pod_wire import Pod
from deviceplugin.scheduler.answers.calls import (
    BindingAsked,
    Judgement,
    Node,
    NodesAsked,
    PreemptionAsked,
    Victims,
)
from deviceplugin.serving.call_body import Size
from libvgpu.decoding import json_decoder

from .go_json import CallMalformed, Fields, decoded, field, fields

_POD = json_decoder(Pod)
_NAMES = json_decoder(list[str])
_TEXT = json_decoder(str)
_RAW_BY_NAME = json_decoder(dict[str, msgspec.Raw])
_RAW_LIST = json_decoder(list[msgspec.Raw])
_NUMBER = json_decoder(int)
_ARGS, _PREEMPTION, _BINDING = "ExtenderArgs", "ExtenderPreemptionArgs", "ExtenderBindingArgs"


_NODE = json_decoder(Node)


def nodes_asked(body: bytes) -> NodesAsked:
    """Returns what `filter` and `prioritize` are sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _ARGS)
    pod = _pod(found, _ARGS)
    names = field(found, "NodeNames", _NAMES, _ARGS, Size.FLAT)
    if names is not None:
        return NodesAsked(pod, names)
    listed = found.get("nodes")
    if listed is None:
        raise CallMalformed(f"{_ARGS} has neither NodeNames nor Nodes")
    items = field(
        fields(listed, f"{_ARGS}'s Nodes"), "items", _RAW_LIST, f"{_ARGS}'s Nodes", Size.FLAT
    )
    nodes: dict[str, Node] = {}
    raw: dict[str, msgspec.Raw] = {}
    for each in items or ():
        node = decoded(each, _NODE, f"one of {_ARGS}'s Nodes")
        if not node.metadata.name:
            raise CallMalformed(f"{_ARGS}'s Nodes has one without a name")
        nodes[node.metadata.name], raw[node.metadata.name] = node, each
    return NodesAsked(pod, tuple(nodes), nodes, raw)


def filter_result(judgement: Judgement, asked: NodesAsked | None) -> bytes:
    """Returns the answer to `filter`.

    Args:
        asked: the call; None where only an error is told.
    """
    names: Sequence[str] | None = None
    listed: dict[str, Any] | None = None
    if asked is not None and not judgement.error:
        if asked.raw is None:
            names = judgement.fitting
        else:
            listed = {"metadata": {}, "items": [asked.raw[name] for name in judgement.fitting]}
    return msgspec.json.encode(
        {
            "Nodes": listed,
            "NodeNames": names,
            "FailedNodes": judgement.refused,
            "FailedAndUnresolvableNodes": judgement.impossible,
            "Error": judgement.error,
        }
    )


def priorities(scores: Iterable[tuple[str, int]]) -> bytes:
    """Returns the answer to `prioritize`."""
    return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores])


def preemption_asked(body: bytes) -> PreemptionAsked:
    """Returns what `preempt` is sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _PREEMPTION)
    pod = _pod(found, _PREEMPTION)
    by_node = field(found, "NodeNameToMetaVictims", _RAW_BY_NAME, _PREEMPTION, Size.FLAT)
    if by_node is not None:
        return PreemptionAsked(pod, {name: _meta(each) for name, each in by_node.items()})
    by_node = field(found, "NodeNameToVictims", _RAW_BY_NAME, _PREEMPTION, Size.FLAT)
    if by_node is None:
        raise CallMalformed(
            f"{_PREEMPTION} has neither NodeNameToMetaVictims nor NodeNameToVictims"
        )
    return PreemptionAsked(pod, {name: _whole(each) for name, each in by_node.items()})


def preemption_result(victims: Mapping[str, Victims]) -> bytes:
    """Returns the answer to `preempt`."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                name: {
                    "Pods": [{"UID": uid} for uid in each.uids],
                    "NumPDBViolations": each.violations,
                }
                for name, each in victims.items()
            }
        }
    )


def binding_asked(body: bytes) -> BindingAsked:
    """Returns what `bind` is sent.

    Raises:
        CallMalformed: it is no such call.
    """
    found = fields(body, _BINDING)
    values = [
        field(found, name, _TEXT, _BINDING) or ""
        for name in ("PodNamespace", "PodName", "PodUID", "Node")
    ]
    if not all(values):
        raise CallMalformed(f"{_BINDING} lacks one of PodNamespace, PodName, PodUID and Node")
    return BindingAsked(*values)


def error_result(error: str) -> bytes:
    """Returns the answer to `bind`; empty where the pod was bound."""
    return msgspec.json.encode({"Error": error})


def error_of(body: bytes) -> str:
    """Returns what an answer to `bind` says.

    Raises:
        CallMalformed: it is none.
    """
    what = "ExtenderBindingResult"
    return field(fields(body, what), "Error", _TEXT, what) or ""


def _pod(found: Fields, what: str) -> Pod:
    pod = field(found, "Pod", _POD, what)
    if pod is None:
        raise CallMalformed(f"{what} has no Pod")
    return pod


def _meta(value: msgspec.Raw) -> Victims:
    what = "MetaVictims"
    found = fields(value, what)
    pods = field(found, "Pods", _RAW_LIST, what, Size.FLAT) or []
    uids = (field(fields(each, "MetaPod"), "UID", _TEXT, "MetaPod") or "" for each in pods)
    return Victims(
        tuple(uid for uid in uids if uid), field(found, "NumPDBViolations", _NUMBER, what) or 0
    )


def _whole(value: msgspec.Raw) -> Victims:
    what = "Victims"
    found = fields(value, what)
    pods = field(found, "Pods", _RAW_LIST, what, Size.FLAT) or []
    uids = (decoded(each, _POD, f"{what}'s Pod").metadata.uid for each in pods)
    return Victims(
        tuple(uid for uid in uids if uid), field(found, "NumPDBViolations", _NUMBER, what) or 0
    )
