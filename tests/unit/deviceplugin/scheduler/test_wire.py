"""kube-scheduler's extender calls: what Go sends, what others send, and what nobody should."""

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.scheduler.answers.calls import BindingAsked, Judgement, Victims
from deviceplugin.scheduler.wire import kube_scheduler, volcano_calls
from deviceplugin.scheduler.wire.go_json import CallMalformed

POD: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "namespace": "team",
        "uid": "u",
        "creationTimestamp": None,
        "managedFields": [{"fieldsV1": {"f:spec": {}}}],
    },
    "spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/vgpu-core": "1"}}}]},
}
NODE: dict[str, Any] = {
    "metadata": {"name": "n1", "labels": {"x": "y"}, "uid": "7"},
    "spec": {"podCIDR": "10.0.0.0/24"},
    "status": {"allocatable": {"cpu": "8", "nvidia.com/vgpu-core": "800"}, "images": [{}]},
}


def body(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_names_come_and_go_back_as_names() -> None:
    asked = kube_scheduler.nodes_asked(body(Pod=POD, Nodes=None, NodeNames=["n1", "n2"]))

    assert asked.pod.metadata.uid == "u"
    assert (list(asked.names), asked.nodes) == (["n1", "n2"], None)
    answer = json.loads(kube_scheduler.filter_result(Judgement(["n2"], {"n1": "full"}), asked))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {"n1": "full"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_whole_nodes_go_back_as_they_came() -> None:
    other = {"metadata": {"name": "n2"}}
    asked = kube_scheduler.nodes_asked(
        body(Pod=POD, Nodes={"metadata": {}, "items": [NODE, other]}, NodeNames=None)
    )

    assert list(asked.names) == ["n1", "n2"]
    assert asked.nodes is not None
    assert asked.nodes["n1"].status.allocatable == NODE["status"]["allocatable"]
    answer = json.loads(kube_scheduler.filter_result(Judgement(["n1"], {}, {"n2": "none"}), asked))
    assert answer["Nodes"]["items"] == [NODE]
    assert (answer["NodeNames"], answer["FailedAndUnresolvableNodes"]) == (None, {"n2": "none"})


def test_keys_may_be_in_any_case() -> None:
    asked = kube_scheduler.nodes_asked(body(pod=POD, nodenames=["n1"]))
    preempted = kube_scheduler.preemption_asked(
        body(pod=POD, nodeNameToMetaVictims={"n1": {"pods": [{"uid": "v"}], "numPDBViolations": 2}})
    )
    bound = kube_scheduler.binding_asked(body(podname="a", podNAMESPACE="t", podUid="u", node="n1"))

    assert list(asked.names) == ["n1"]
    assert preempted.victims == {"n1": Victims(("v",), 2)}
    assert bound == BindingAsked("t", "a", "u", "n1")


def test_an_error_goes_back_alone() -> None:
    asked = kube_scheduler.nodes_asked(body(Pod=POD, NodeNames=["n1"]))

    answer = json.loads(kube_scheduler.filter_result(Judgement(error="not yet"), asked))

    assert (answer["Error"], answer["NodeNames"], answer["Nodes"]) == ("not yet", None, None)


def test_no_nodes_are_none_in_the_form_that_was_asked() -> None:
    by_name = kube_scheduler.nodes_asked(body(Pod=POD, NodeNames=[]))
    whole = kube_scheduler.nodes_asked(body(Pod=POD, Nodes={"metadata": {}, "items": None}))

    assert json.loads(kube_scheduler.filter_result(Judgement(), by_name))["NodeNames"] == []
    assert json.loads(kube_scheduler.filter_result(Judgement(), whole))["Nodes"]["items"] == []


def test_victims_come_as_pods_or_by_uid_and_go_back_by_uid() -> None:
    pods = [{"metadata": {"uid": "v", "name": "x"}, "spec": {}}]
    whole = kube_scheduler.preemption_asked(
        body(Pod=POD, NodeNameToVictims={"n1": {"Pods": pods, "NumPDBViolations": 1}})
    )
    meta = kube_scheduler.preemption_asked(
        body(Pod=POD, NodeNameToMetaVictims={"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}})
    )

    assert whole.victims == meta.victims == {"n1": Victims(("v",), 1)}
    assert json.loads(kube_scheduler.preemption_result(meta.victims)) == {
        "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    }


def test_scores_are_a_list_of_hosts() -> None:
    assert json.loads(kube_scheduler.priorities([("n1", 7)])) == [{"Host": "n1", "Score": 7}]


def test_the_answer_to_a_bind_is_read_back() -> None:
    assert kube_scheduler.error_of(kube_scheduler.error_result("")) == ""
    assert kube_scheduler.error_of(kube_scheduler.error_result("no room")) == "no room"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"", "ExtenderArgs is malformed"),
        (b"[]", "ExtenderArgs is malformed"),
        (b"{}", "has no Pod"),
        (body(Pod=None, NodeNames=[]), "has no Pod"),
        (body(Pod=POD), "neither NodeNames nor Nodes"),
        (body(Pod=3, NodeNames=[]), "ExtenderArgs's Pod is malformed"),
        (body(Pod=POD, NodeNames=[1]), "ExtenderArgs's NodeNames is malformed"),
        (body(Pod=POD, Nodes={"items": [{}]}), "one without a name"),
        (body(Pod=POD, Nodes={"items": [None]}), "one of ExtenderArgs's Nodes is malformed"),
        (b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"Pod": ' + b'{"a":' * 100_000, "nested too deeply"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_what_is_no_call_is_refused_with_a_sentence(sent: bytes, says: str) -> None:
    with pytest.raises(CallMalformed, match=says):
        kube_scheduler.nodes_asked(sent)


def test_a_bind_needs_all_its_fields() -> None:
    with pytest.raises(CallMalformed, match="lacks one of PodNamespace, PodName, PodUID and Node"):
        kube_scheduler.binding_asked(body(PodName="a", PodNamespace="t", PodUID="", Node="n"))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Pod", "Nodes", "NodeNames", "items", "metadata", "name", "spec", "UID", "Pods",
                 "containers", "resources", "limits", "NodeNameToVictims", "uid", "PodName",
                 "NodeNameToMetaVictims", "nvidia.com/vgpu-core", "Error", "NumPDBViolations"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)  # fmt: skip
READERS = (
    kube_scheduler.nodes_asked,
    kube_scheduler.preemption_asked,
    kube_scheduler.binding_asked,
    kube_scheduler.error_of,
)


@given(st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_read_or_refused(sent: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(CallMalformed):
            read(sent)


def listed(item: bytes, count: int) -> bytes:
    return b"[" + b",".join([item] * count) + b"]"


_ASKED = b'{"Pod":{"metadata":{}},"task":{"Pod":{"metadata":{}}},"evictor":{"Pod":{}},%s}'
_MANY = 100_001


@pytest.mark.parametrize(
    ("call", "sent", "what"),
    [
        (kube_scheduler.nodes_asked, b'"NodeNames":%s' % listed(b'"n1"', _MANY),
         "NodeNames is too large: it has 100001 entries, and at most 100000 are read"),
        (kube_scheduler.nodes_asked, b'"Nodes":{"items":%s}' % listed(b"{}", _MANY),
         "items is too large: it has 100001 entries"),
        (kube_scheduler.nodes_asked, b'"Pod":{"a":[{"b":%s}]}' % listed(b"{}", 60_000),
         "Pod is too large: it has 120003 values"),
        (kube_scheduler.preemption_asked,
         b'"NodeNameToMetaVictims":{"n1":{"Pods":%s}}' % listed(b"{}", _MANY),
         "Pods is too large: it has 100001 entries"),
        (kube_scheduler.binding_asked, b",".join(b'"%d":1' % n for n in range(_MANY)),
         "ExtenderBindingArgs is too large: it has 100004 entries"),
        (volcano_calls.eviction_asked,
         b'"evictor":{"Pod":{"metadata":{}}},"evictees":%s' % listed(b"1", _MANY),
         "evictees is too large: it has 100001 entries"),
        (volcano_calls.task_on_nodes, b'"nodes":%s' % listed(b"{}", 150_000),
         "nodes is too large: it has 300000 values"),
    ],
)  # fmt: skip
def test_a_call_that_holds_too_much_is_refused_before_it_is_decoded(
    call: Callable[[bytes], object], sent: bytes, what: str
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CallMalformed, match=what):
            call(_ASKED % sent)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 2 * len(sent) + (1 << 20)


def test_as_many_names_as_a_large_cluster_has_are_taken() -> None:
    # Commas and brackets within names are no entries.
    sent = b'{"Pod":{"metadata":{}},"NodeNames":%s}' % listed(b'"[,{\\",\\\\"', 100_000)

    assert len(kube_scheduler.nodes_asked(sent).names) == 100_000
