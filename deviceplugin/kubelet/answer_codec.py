"""What an answer to Allocate mounted, read back from the bytes that the kubelet keeps of it."""

from collections.abc import Mapping

from google.protobuf.message import DecodeError

from deviceplugin.kubelet.protos import deviceplugin_v1beta1_pb2 as pb


def mounts_of(answer: bytes) -> Mapping[str, str]:
    """Returns the host path behind each path in the container; none where it is no answer.

    Args:
        answer: a serialised ContainerAllocateResponse.
    """
    response = pb.ContainerAllocateResponse()
    try:
        response.ParseFromString(answer)
    except DecodeError:
        return {}
    return {mount.container_path: mount.host_path for mount in response.mounts}
