"""Agents and who reads them may be of different versions: keys stay, may be absent and may come.

Each page stands here as an agent writes it. A key that is renamed or dropped, or of another type,
is missed by readers of another version; so what is here changes only where a page's version does.
"""

import json
from typing import Any

import msgspec
import pytest

from deviceplugin.pages.changes import CHANGED, OVERRIDE, PROBLEM
from deviceplugin.pages.config import CONFIG
from deviceplugin.pages.events import EVENTS
from deviceplugin.pages.state import STATE

#: Page -> how it is read, all that it has, and the keys of each object that it always had.
PAGES: dict[str, tuple[Any, Any, Any]] = {
    "state": (
        STATE,
        {
            "agent": {
                "version": "1", "pid": 7, "node": "n1", "started_at": 1.5, "sees_node_pids": False
            },
            "config": {
                "path": "/c", "digest": "d", "rules": 2, "error": "line 2: no", "hint": "say yes",
                "in_part": True, "name": "a100", "chosen_by": "label", "is_kept": True,
                "label_problem": "403",
            },
            "resources": [{"name": "nvidia.com/vgpu-core", "registered_at": None}],
            "shim_build": "b",
            "mps_gpus": ["GPU-0"],
            "loop_problem": "late",
            "podresources_problem": "silent",
            "unheard_resources": ["nvidia.com/vgpu-core"],
            "pods_problem": "403",
            "publish_problem": "403",
            "unhealthy_gpus": {"GPU-1": "XID 79"},
            "left_out_gpus": {"3": "lost"},
            "driver_problem": "no answer",
            "watch": {
                "problem": "no pids", "policy": "kill",
                "bypassing_count": 1,
                "bypassing": [{
                    "gpu": "GPU-0", "pid": 7, "command": "x", "memory_bytes": None,
                    "allocation": "a", "owner": "ns/pod/c", "how": "by a copy",
                }],
                "foreign_count": 1,
                "foreign": [{
                    "gpu": "GPU-0", "pid": 8, "command": "y", "memory_bytes": 5,
                    "allocation": "", "owner": "", "how": "",
                }],
                "damaged_count": 1,
                "damaged": [{"allocation": "a", "owner": "ns/pod/c", "problem": "it cut it"}],
                "charged_count": 1,
                "charged": [{
                    "gpu": "GPU-0", "allocation": "a", "owner": "ns/pod/c", "memory_bytes": 5,
                }],
                "forged_count": 1,
                "forged": [{
                    "gpu": "GPU-0", "allocation": "a", "owner": "ns/pod/c", "share_percent": 20,
                }],
                "ended_count": 3,
            },
            "draining_gpus": {"GPU-2": "mps until 1 slices have ended"},
            "injection": {
                "lists": ["cdi-cri"], "because": "so it is", "needs_class": ["nvidia"],
                "spec": "/s", "problems": ["no driver"],
            },
            "withheld_gpus": {"GPU-3": "it is in MIG mode"},
            "unmatched_entries": ["sharing.fractional[0]"],
            "mig_differences": {"GPU-4": "it is in MIG mode, uncut"},
            "allocations": [{
                "allocation": "a", "owner": "ns/pod/c",
                "devices": [{
                    "gpu": "GPU-0", "core": "limits[0]", "memory": "request", "compute": "sharing",
                    "asked_core_percent": 40, "asked_memory_bytes": 5,
                }],
                "shim_build": "b",
            }],
            "devices": [{"resource": "nvidia.com/gpu", "id": "GPU-4", "owner": "ns/pod/c"}],
            "version": 1,
        },
        {
            "agent": {"version": "1", "pid": 7, "node": "n1", "started_at": 1.5},
            "config": {"path": "/c", "digest": "d", "rules": 2},
            "resources": [{"name": "nvidia.com/vgpu-core", "registered_at": None}],
            "shim_build": "b",
            "watch": {"foreign": [{"gpu": "GPU-0", "pid": 8, "command": "y"}],
                      "damaged": [{"allocation": "a"}],
                      "charged": [{"gpu": "GPU-0", "allocation": "a"}],
                      "forged": [{"gpu": "GPU-0", "allocation": "a"}]},
            "allocations": [{"allocation": "a", "owner": "o", "devices": [{"gpu": "GPU-0"}]}],
            "devices": [{"resource": "nvidia.com/gpu", "id": "GPU-4"}],
        },
    ),
    "config": (
        CONFIG,
        {
            "path": "/c", "name": "a100", "is_kept": True, "version": 1,
            "values": [{"key": "flags.x", "value": ["a", 1], "origin": "line 4"}],
        },
        {"path": "/c", "values": []},
    ),
    "events": (
        EVENTS,
        [{
            "at": 1.5, "reason": "GpuDraining", "text": "it waits", "is_warning": True,
            "subject": "ns/pod/c", "left_out": 2,
        }],
        [{"at": 1.5, "reason": "GpuDraining", "text": "it waits"}],
    ),
    "change": (
        CHANGED,
        {
            "allocation": "a", "owner": "ns/pod/c",
            "devices": [{
                "gpu_uuid": "GPU-0",
                "old": {"memory_bytes": 2, "core_percent": 40, "compute": "strict"},
                "new": {"memory_bytes": 1, "core_percent": 20, "compute": None},
                "pending": ["core"],
            }],
        },
        {"allocation": "a", "owner": "", "devices": []},
    ),
    "problem": (PROBLEM, {"message": "too much", "hint": None}, {"message": "too much"}),
}  # fmt: skip
#: Their keys are names of GPUs.
BY_GPU = (
    "unhealthy_gpus", "left_out_gpus", "draining_gpus", "withheld_gpus", "mig_differences",
)  # fmt: skip


def of_a_newer_agent(value: Any) -> Any:
    """Returns a page with one key more in each object."""
    if isinstance(value, list):
        return [of_a_newer_agent(each) for each in value]
    if not isinstance(value, dict):
        return value
    more = {key: each if key in BY_GPU else of_a_newer_agent(each) for key, each in value.items()}
    return more | {"of_a_newer_agent": [1]}


@pytest.mark.parametrize("page", PAGES)
def test_each_key_is_read_and_written_by_the_name_that_it_has(page: str) -> None:
    read, whole, _ = PAGES[page]
    assert json.loads(msgspec.json.encode(read.decode(json.dumps(whole).encode()))) == whole


@pytest.mark.parametrize("page", PAGES)
def test_what_an_older_agent_does_not_say_is_no_error(page: str) -> None:
    read, _, least = PAGES[page]
    assert read.decode(json.dumps(least).encode())


@pytest.mark.parametrize("page", PAGES)
def test_what_a_newer_agent_adds_is_passed_over(page: str) -> None:
    read, whole, _ = PAGES[page]
    newer = json.dumps(of_a_newer_agent(whole)).encode()
    assert read.decode(newer) == read.decode(json.dumps(whole).encode())


def test_an_agent_is_asked_for_what_is_set_and_no_more() -> None:
    """It refuses a key that it does not know, so that nothing is said to be set which is not."""
    asked = {"core_percent": 20, "memory_bytes": 1 << 30, "compute": "elastic"}
    for key, value in asked.items():
        body = json.dumps({key: value}).encode()
        assert json.loads(msgspec.json.encode(OVERRIDE.decode(body))) == {key: value}
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        OVERRIDE.decode(json.dumps(of_a_newer_agent(asked)).encode())
