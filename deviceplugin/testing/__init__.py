"""A small kubelet stand-in: enough of one to admit pods against real device plugins.

It speaks the real protocols (Registration, DevicePlugin, podresources) on the kubelet's own socket
names under a directory of the caller's, and follows the device manager's order of calls. It runs
no container; `StandInKubelet.run_options` says what a runtime would be told. Admissions are serial,
as a kubelet's are; any thread may ask for one.
"""

from .kubelet import StandInKubelet
from .merge import RunOptions
from .pod_admission import AdmissionFailed
from .pods import ContainerManifest, PodManifest, read_pod
from .records import AdmittedContainer, AdmittedPod

__all__ = [
    "AdmissionFailed",
    "AdmittedContainer",
    "AdmittedPod",
    "ContainerManifest",
    "PodManifest",
    "RunOptions",
    "StandInKubelet",
    "read_pod",
]
