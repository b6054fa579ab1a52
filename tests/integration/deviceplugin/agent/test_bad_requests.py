"""What no kubelet sends is refused with a sentence, and the agent neither ends nor grows."""

import time
from collections.abc import Iterator

import grpc
import pytest

from benchmarks.agent_node import MIB, RESOURCES, AgentNode, open_node, profiles
from benchmarks.process import descriptors, memory, threads
from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb
from deviceplugin.model.units import MOST_UNITS_PER_RESOURCE
from support.waiting import wait_until

CORE, MEMORY = RESOURCES
GPUS = 2
GARBAGE = b"\xff\xff\xff\xff"
OVERSIZED = 20 * MIB
#: Two bytes each on the wire, so as many as a request can carry.
EMPTY_NAMES = 1_000_000
MOST_GROWTH_BYTES = 4 * MIB
METHODS = ("GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer")


@pytest.fixture
def node() -> Iterator[AgentNode]:
    with open_node(profiles()[:GPUS]) as node:
        yield node


def refused(node: AgentNode, method: str, request: bytes) -> tuple[str, str]:
    """Returns the code and the sentence with which the agent refuses."""
    with pytest.raises(grpc.RpcError) as caught:
        node.kubelet.plugins[CORE].call(method, request)
    return caught.value.code().name, caught.value.details()


def allocate(*units: str) -> bytes:
    part = pb.ContainerAllocateRequest(devices_ids=units)
    return pb.AllocateRequest(container_requests=[part]).SerializeToString()


def prefer(available: list[str], count: int, must: tuple[str, ...] = ()) -> bytes:
    part = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=count
    )
    return pb.PreferredAllocationRequest(container_requests=[part]).SerializeToString()


def pre_start(*units: str) -> bytes:
    return pb.PreStartContainerRequest(devices_ids=units).SerializeToString()


def assert_serves(node: AgentNode, name: str) -> None:
    """A pod gets its slice, and gives it back."""
    pod = node.kubelet.admit(name, {CORE: 30, MEMORY: 20})
    node.kubelet.start_container(pod)
    node.kubelet.finish(pod)


def test_what_is_no_request_at_all_is_refused_in_words(node: AgentNode) -> None:
    for method in METHODS:
        code, words = refused(node, method, GARBAGE)

        assert code == "INVALID_ARGUMENT"
        assert f"the {len(GARBAGE)} bytes sent to {method} are not a valid " in words
    for method in ("GetPreferredAllocation", "Allocate"):
        assert refused(node, method, b"") == (
            "INVALID_ARGUMENT",
            f"{method} names no container; ask for one",
        )
    code, words = refused(node, "Allocate", bytes(OVERSIZED))
    assert code == "RESOURCE_EXHAUSTED"
    assert f"larger than max ({OVERSIZED} vs." in words
    names = [f"u{n}" for n in range(MOST_UNITS_PER_RESOURCE + 1)]
    for method, request in (
        ("Allocate", allocate(*names)),
        ("GetPreferredAllocation", prefer(names, 1)),
        ("GetPreferredAllocation", prefer([], 1, tuple(names))),
        ("PreStartContainer", pre_start(*names)),
    ):
        code, words = refused(node, method, request)

        assert code == "INVALID_ARGUMENT"
        assert f"names {MOST_UNITS_PER_RESOURCE + 1} units" in words
        assert str(MOST_UNITS_PER_RESOURCE) in words
    assert_serves(node, "after-garbage")


def test_units_that_make_no_sense_are_refused_in_words(node: AgentNode) -> None:
    first, second = (device.uuid for device in node.machine.devices)
    unit, other_half = f"{first}::c0", f"{first}::m0"
    for request, said in (
        (allocate(), "names no unit"),
        (allocate("rubbish"), "'rubbish', which is not a unit of core"),
        (allocate("\x00\n" + "x" * 10_000), "which is not a unit of core"),
        (allocate(other_half), "which is not a unit of core"),
        (allocate(unit, unit), "names a unit twice"),
        (allocate(unit, f"{second}::c0"), first),
        (allocate(f"{first}::c100"), "not offered"),
        (allocate("GPU-of-another-node::c0"), "not offered"),
    ):
        code, words = refused(node, "Allocate", request)

        assert code == "FAILED_PRECONDITION"
        assert said in words
        assert len(words) < 500
    for count, said in ((0, "ask for 1 to"), (-1, "ask for 1 to"), (2**31 - 1, "")):
        code, words = refused(node, "GetPreferredAllocation", prefer([unit], count))

        assert (code, said in words, str(count) in words) == ("FAILED_PRECONDITION", True, True)
    for request in (pre_start(), pre_start("rubbish"), pre_start(unit)):
        code, words = refused(node, "PreStartContainer", request)

        assert (code, "no record of these" in words) == ("FAILED_PRECONDITION", True)
    assert_serves(node, "after-nonsense")


def test_none_of_them_makes_the_agent_grow(node: AgentNode) -> None:
    kinds = {
        "garbage": (1000, "Allocate", GARBAGE),
        "oversized": (10, "Allocate", bytes(OVERSIZED)),
        "many empty names": (10, "Allocate", allocate(*[""] * EMPTY_NAMES)),
        "unknown": (200, "Allocate", allocate("rubbish")),
        "no such method": (200, "Obliterate", b""),
    }
    for _, method, request in kinds.values():  # each once: what is made for the first stays
        refused(node, method, request)
    assert_serves(node, "before")
    grown = {}
    held, open_files = threads(node.pid), descriptors(node.pid)
    for kind, (times, method, request) in kinds.items():
        before = memory(node.pid).resident_bytes
        for _ in range(times):
            refused(node, method, request)
        time.sleep(0.2)
        grown[kind] = memory(node.pid).resident_bytes - before

    assert {kind: n // MIB for kind, n in grown.items() if n > MOST_GROWTH_BYTES} == {}
    wait_until(lambda: threads(node.pid) <= held + 2, "no more threads: gRPC's own come and go")
    # The limits of the pod before are kept open until it is freed.
    wait_until(lambda: descriptors(node.pid) <= open_files)
    assert_serves(node, "after")


def test_streams_that_are_left_give_their_threads_back(node: AgentNode) -> None:
    plugin = node.kubelet.plugins[CORE]
    for _ in range(30):  # many times the threads that one resource has
        stream = plugin._channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"")
        assert len(next(stream)) == plugin.message_bytes
        stream.cancel()

    assert_serves(node, "after-streams")
