"""What is offered of the node's GPUs now, taken from the state under its lock."""

from collections.abc import Callable, Sequence

from deviceplugin.model.gpus import Gpu
from deviceplugin.model.label_settings import LabelSettings
from deviceplugin.store.node_state import NodeState

from .from_layout import free_slices, shared_resources
from .offered import Offered


def what_is_offered(
    state: NodeState,
) -> Callable[[LabelSettings], tuple[Sequence[Gpu], Offered]]:
    """Returns what tells of the GPUs of the node and of what is offered of them."""

    def look(settings: LabelSettings) -> tuple[Sequence[Gpu], Offered]:
        with state.lock:
            whole = tuple(gpu for gpu in state.gpus if gpu.mig is None)  # they list their parts
            return whole, Offered(
                domain=state.layout.resource_domain,
                resources=shared_resources(state.layout),
                slices=free_slices(state.layout, state.book, state.unhealthy),
                mig_strategy=settings.mig_strategy,
            )

    return look
