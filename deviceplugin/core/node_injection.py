"""How containers of this node get their GPUs, from the node's own files and the Node object."""

import os
from collections.abc import Sequence
from contextlib import suppress

from deviceplugin.cdi.injection import NodeInjection
from deviceplugin.cdi.node_driver import NodeDriver
from deviceplugin.cdi.runtime_files import read_facts
from deviceplugin.cdi.strategy import RuntimeFacts
from deviceplugin.cdi.trees import node_root
from deviceplugin.kube.api_client import ApiServer
from deviceplugin.model.device_forms import DeviceForms
from deviceplugin.model.gpus import Gpu
from libvgpu.errors import VgpuError


def node_injection(
    forms: DeviceForms,
    host_root: str,
    node_name: str,
    api: ApiServer | None,
    gpus: Sequence[Gpu],
) -> NodeInjection:
    """Returns how containers get their GPUs on this node.

    Args:
        forms: what the config says.
        host_root: where the agent sees the node's root; empty: where that is known to be.
        node_name: of the Node.
        api: tells versions of kubelet and container runtime; None where there is none.
        gpus: those of the node.
    """
    root = node_root(host_root, os.environ)

    def facts() -> RuntimeFacts:
        versions = ("", "")
        if api is not None:
            # Files of the node tell without it, and both forms are given where nothing does.
            with suppress(VgpuError):
                versions = api.node_versions(node_name)
        return read_facts(root, *versions)

    driver = NodeDriver(forms, root, os.environ)
    return NodeInjection(forms, driver, gpus, facts, os.uname().machine)
