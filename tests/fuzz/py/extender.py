"""Calls of schedulers, through to the answer: pods, annotations, nodes, victims, tasks."""

import json
from typing import Any

import msgspec
from msgspec import inspect

from deviceplugin.kube.pod_wire import Pod
from deviceplugin.scheduler.answers.calls import Node
from deviceplugin.scheduler.answers.extender import Extender
from deviceplugin.scheduler.cluster.cluster import Cluster
from deviceplugin.scheduler.search.policies import Policies
from deviceplugin.scheduler.wire import server
from deviceplugin.scheduler.wire.bind_call import BindCall
from deviceplugin.scheduler.wire.volcano import VolcanoExtender
from deviceplugin.scheduler.wire.volcano_calls import SessionNode, Task
from deviceplugin.serving.calls import Call, CallRefused
from fuzz.shapes import Shapes, words_of
from support.scheduler.values import CORE, DOMAIN, MEMORY, held_slice, pod_of, published

_POD, _NODE, _TASK, _SESSION = map(inspect.type_info, (Pod, Node, Task, SessionNode))
_WORDS = [*dict.fromkeys(words_of(_TASK)), CORE, MEMORY, f"{DOMAIN}/gpu", "n1", "n2", "uid-a",
          f"{DOMAIN}/vgpu.use-gpu-models", f"{DOMAIN}/vgpu.avoid-gpus", f"{DOMAIN}/vgpu.gpus",
          f"{DOMAIN}/vgpu.gpu-policy", f"{DOMAIN}/vgpu.node-policy", "binpack", "spread", "h100",
          "GPU-n1-0", "100", "50", "8", "1k", "2Ki", "1e3", "0.5", "-1", "Always"]  # fmt: skip


def _endpoints() -> server.Endpoints:
    policies = Policies(DOMAIN)
    cluster = Cluster(policies.plan)
    cluster.set_nodes(
        {"n1": published(held_slice("x", "a", 60, 8)), "n2": published(count=1, node="n2")}
    )
    cluster.set_pod(pod_of("a", 60, 8, "n1"))
    extender = Extender(cluster, policies, lambda: (), lambda: "")
    volcano = VolcanoExtender(extender)
    return server.Endpoints(extender, volcano, BindCall(None, lambda: True, None))


_ENDPOINTS = _endpoints()
_CALLS = tuple(
    server._told(getattr(_ENDPOINTS, name))
    for name in ("filter", "prioritize", "preempt", "bind", "predicate", "scores", "evictable")
)


def one(data: bytes) -> None:
    """Makes one call."""
    shapes = Shapes(data)
    how = shapes.byte()
    body = shapes.rest() if how & 128 else json.dumps(_call(shapes, how >> 3)).encode()
    try:
        answer = _CALLS[how % len(_CALLS)](Call("/", body))
    except CallRefused as refused:
        if refused.status >= 500:
            raise
        return
    msgspec.json.decode(answer.body)


def _call(shapes: Shapes, how: int) -> dict[str, Any]:
    pod, names = _pod(shapes), ["n1", shapes.text(_WORDS)]
    victims = {"Pods": [{"UID": "uid-a"}, shapes.json(_WORDS)], "NumPDBViolations": shapes.byte()}
    whole = {"Pods": [_pod(shapes)], "NumPDBViolations": shapes.json(_WORDS)}
    task = {"UID": "u", "Pod": pod, "Status": shapes.byte()}
    session = {"Name": "n1", "Tasks": {"t": shapes.like(_TASK, _WORDS)}}
    found = {
        "Pod": pod,
        "NodeNames": names,
        "Nodes": {"items": [{"metadata": {"name": "n1"}}, shapes.like(_NODE, _WORDS)]},
        "NodeNameToMetaVictims": {"n1": victims},
        "NodeNameToVictims": {"n1": whole},
        "PodName": "a", "PodNamespace": "team", "PodUID": "u", "Node": shapes.text(_WORDS),
        "task": task, "node": session, "nodes": [session, shapes.like(_SESSION, _WORDS)],
        "evictor": task, "evictees": [{**task, "UID": "uid-a", "NodeName": "n1"}],
    }  # fmt: skip
    if how & 1:
        found.pop(shapes.pick(sorted(found)))
    if how & 2:
        for key in ("NodeNames", "NodeNameToMetaVictims"):
            found.pop(key, None)
    if how & 4:
        found[shapes.pick(sorted(found))] = shapes.json(_WORDS)
    return {key.lower() if how & 8 else key: value for key, value in found.items()}


def _pod(shapes: Shapes) -> Any:
    pod = shapes.like(_POD, _WORDS)
    limits = {CORE: shapes.text(_WORDS[-9:]), MEMORY: shapes.text(_WORDS[-9:])}
    if isinstance(pod, dict) and shapes.byte() < 200:
        spec = {"containers": [{"name": "m", "resources": {"limits": limits}}]}
        pod = {**pod, "metadata": {"uid": "u", "name": "a", "namespace": "team"}, "spec": spec}
        pod["metadata"]["annotations"] = {
            f"{DOMAIN}/{shapes.pick(_WORDS)}".replace(f"{DOMAIN}/{DOMAIN}", DOMAIN): shapes.text(
                _WORDS
            )
            for _ in range(shapes.byte() % 3)
        }
    return pod
