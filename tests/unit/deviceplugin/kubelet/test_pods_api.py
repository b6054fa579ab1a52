"""Pods as the kubelet's own API lists them."""

import pytest

from deviceplugin.kubelet.pods_api import _pod
from deviceplugin.kubelet.protos import pods_v1alpha1_pb2 as pb


@pytest.mark.parametrize("seconds", [1 << 62, -(1 << 62), 1 << 40])
def test_a_pod_made_in_no_year_has_no_time(seconds: int) -> None:
    listed = pb.ListPodsResponse().pods.add()
    listed.metadata.creation_timestamp.seconds = seconds

    assert _pod(listed, "nvidia.com").metadata.creation_timestamp is None
