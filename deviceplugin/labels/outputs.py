"""Which output the config asks for."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from deviceplugin.heartbeats import Beat
from deviceplugin.model.label_settings import LabelSettings, LabelTarget
from libvgpu.errors import VgpuError

from .feature_file import FeatureFile, StandardOutput
from .node_objects import ApiOutput, NodeApi, apply_to_node, apply_to_node_feature
from .publisher import LabelOutput


def output_of(
    api: NodeApi | None, node: str, domain: str, beat: Beat | None = None
) -> Callable[[LabelSettings], LabelOutput | None]:
    """Returns what makes the output of a config.

    Args:
        api: None where the agent has no service account.
        node: name of this Node.
        domain: of the annotation that keeps which labels are ours.
        beat: of the thread that writes to the API server.
    """

    def make(settings: LabelSettings) -> LabelOutput | None:
        if settings.target is LabelTarget.NONE:
            return None
        if settings.target is LabelTarget.FILE:
            path = settings.output_file
            return FeatureFile(Path(path)) if path else StandardOutput()
        if api is None:
            raise VgpuError(
                f"labels go to the API server by the config ({settings.target}), but the agent has "
                "no service account here"
            )
        if settings.target is LabelTarget.NODE:
            return ApiOutput(partial(apply_to_node, api, node, domain), beat)
        return ApiOutput(partial(apply_to_node_feature, api, node), beat)

    return make
