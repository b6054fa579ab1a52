"""Calls of Volcano's plugin ``extender``, in the form in which Go writes its structs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from support.scheduler.values import DOMAIN

PENDING, ALLOCATED, PIPELINED, BINDING, BOUND, RUNNING, RELEASING = (1 << n for n in range(7))


def resource(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Returns Volcano's ``Resource`` of a pod; it counts extended resources by thousandths."""
    limits = pod["spec"]["containers"][0]["resources"]["limits"]
    scalars = {name: float(amount) * 1000 for name, amount in limits.items()}
    return {"MilliCPU": 0, "Memory": 0, "ScalarResources": scalars, "MaxTaskNum": 0}


def task(
    pod: Mapping[str, Any], status: int = PENDING, node: str = "", job: str = "team/gang"
) -> dict[str, Any]:
    """Returns a ``TaskInfo``."""
    return {
        "UID": pod["metadata"]["uid"],
        "Job": job,
        "Name": pod["metadata"]["name"],
        "Namespace": pod["metadata"]["namespace"],
        "TaskRole": "worker",
        "Resreq": resource(pod),
        "InitResreq": resource(pod),
        # TransactionContext, which Go puts into the struct around it.
        "NodeName": node,
        "EvictionOccurred": False,
        "JobAllocatedHyperNode": "",
        "Status": status,
        "LastTransaction": None,
        "Priority": pod["spec"].get("priority", 1),
        "VolumeReady": False,
        "Preemptable": False,
        "BestEffort": False,
        "HasRestartableInitContainer": False,
        "SchGated": False,
        "RevocableZone": "",
        "NumaInfo": {"Policy": "", "ResMap": {}},
        "Pod": pod,
        "CustomBindErrHandlerSucceeded": False,
    }


def node_info(name: str, tasks: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Returns a ``NodeInfo``; its tasks are by the names of their pods."""
    empty = {"MilliCPU": 0, "Memory": 0, "ScalarResources": None, "MaxTaskNum": 110}
    allocatable = {f"{DOMAIN}/vgpu-core": "200", f"{DOMAIN}/vgpu-memory": "160", "cpu": "64"}
    return {
        "Name": name,
        "Node": {
            "metadata": {"name": name, "uid": f"uid-of-{name}", "creationTimestamp": None},
            "spec": {},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        },
        "State": {"Phase": 1, "Reason": ""},
        **dict.fromkeys(("Releasing", "Pipelined", "Idle", "Used", "Allocatable"), empty),
        "Capacity": empty,
        "ResourceUsage": {"CPUUsageAvg": {}, "MEMUsageAvg": {}},
        "Tasks": {f"{each['Namespace']}/{each['Name']}": each for each in tasks},
        "NumaInfo": None,
        "NumaChgFlag": 0,
        "NumaSchedulerInfo": None,
        "RevocableZone": "",
        "Others": {"GpuShare": None, "hamivgpu": None},
        "OversubscriptionNode": False,
        "OfflineJobEvicting": False,
        "OversubscriptionResource": empty,
        "ImageStates": {},
    }


def predicate(one: Mapping[str, Any], node: Mapping[str, Any]) -> bytes:
    """Returns the body of ``predicate``."""
    return json.dumps({"task": one, "node": node}).encode()


def prioritize(one: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns the body of ``prioritize``."""
    return json.dumps({"task": one, "nodes": nodes}).encode()


def preemptable(evictor: Mapping[str, Any], evictees: Sequence[Mapping[str, Any]]) -> bytes:
    """Returns the body of ``preemptable`` and ``reclaimable``."""
    return json.dumps({"evictor": evictor, "evictees": evictees}).encode()
