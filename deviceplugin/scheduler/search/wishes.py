"""What a pod wishes of nodes and GPUs, by its annotations: pure.

Behind the resource domain and a slash: `USE_MODELS`, `AVOID_MODELS` (patterns of NVML's product
name), `USE_GPUS`, `AVOID_GPUS` (UUIDs), `NODE_POLICY`, `GPU_POLICY`. A wish narrows the choice and
gives nobody more. One that cannot be understood is refused rather than left out: the pod would else
run where its author did not want it.
"""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from deviceplugin.model.fractional import Placement
from deviceplugin.model.pod_requests import PodRequest
from libvgpu.errors import UsageError

USE_MODELS, AVOID_MODELS = "vgpu.use-gpu-models", "vgpu.avoid-gpu-models"
USE_GPUS, AVOID_GPUS = "vgpu.use-gpus", "vgpu.avoid-gpus"
NODE_POLICY, GPU_POLICY = "vgpu.node-policy", "vgpu.gpu-policy"
#: So that no pod makes a look at 40 000 GPUs slow.
_MOST_NAMES, _MOST_CHARACTERS = 64, 4096
_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9-]{1,52}")


@dataclass(frozen=True, slots=True)
class Wishes:
    """The annotations of one pod.

    Attributes:
        use_models: patterns in lower case, of which a GPU's product must fit one; empty: any.
        avoid_models: none of which it may fit.
        use_gpus: UUIDs of GPUs or MIG devices; empty: any.
        node_policy: None where the extender's own counts.
        gpu_policy: None where that of the node's config counts.
    """

    use_models: tuple[str, ...] = ()
    avoid_models: tuple[str, ...] = ()
    use_gpus: frozenset[str] = frozenset()
    avoid_gpus: frozenset[str] = frozenset()
    node_policy: Placement | None = None
    gpu_policy: Placement | None = None

    @property
    def are_for_any_gpu(self) -> bool:
        """Every GPU will do."""
        return not (self.use_models or self.avoid_models or self.use_gpus or self.avoid_gpus)

    def allow(self, product: str, uuid: str) -> bool:
        """Returns whether a GPU is one that the pod may have."""
        return (
            (not self.use_gpus or uuid in self.use_gpus)
            and uuid not in self.avoid_gpus
            and self.allow_model(product)
        )

    def allow_model(self, product: str) -> bool:
        """Returns whether GPUs of a product are."""
        return (not self.use_models or _fits_one(self.use_models, product)) and not _fits_one(
            self.avoid_models, product
        )

    def described(self) -> str:
        """Returns which GPUs are wished for, as a phrase."""
        parts = (
            ("model ", self.use_models),
            ("not model ", self.avoid_models),
            ("one of ", sorted(self.use_gpus)),
            ("none of ", sorted(self.avoid_gpus)),
        )
        return ", ".join(word + _few(names) for word, names in parts if names)


NO_WISHES = Wishes()


def wishes_of(request: PodRequest, domain: str) -> Wishes:
    """Returns what a pod wishes.

    Raises:
        UsageError: a value that is not allowed.
    """
    if not request.annotations:
        return NO_WISHES
    use_models, avoid_models = (
        tuple(sorted(text.lower() for text in _names(request, f"{domain}/{key}", "product names")))
        for key in (USE_MODELS, AVOID_MODELS)
    )
    use_gpus, avoid_gpus = (
        frozenset(_names(request, f"{domain}/{key}", "UUIDs such as GPU-1b2c…", _UUID))
        for key in (USE_GPUS, AVOID_GPUS)
    )
    node_policy, gpu_policy = (
        _policy(request, f"{domain}/{key}") for key in (NODE_POLICY, GPU_POLICY)
    )
    return Wishes(use_models, avoid_models, use_gpus, avoid_gpus, node_policy, gpu_policy)


def _names(
    request: PodRequest, key: str, what: str, form: re.Pattern[str] | None = None
) -> list[str]:
    """Returns the names of a list with commas; none where the pod has no such annotation."""
    value = request.annotations.get(key)
    if value is None:
        return []
    found = [part.strip() for part in value.split(",")]
    if len(value) > _MOST_CHARACTERS or len(found) > _MOST_NAMES:
        raise UsageError(
            f"annotation {key} is too long; allowed are {_MOST_NAMES} names and "
            f"{_MOST_CHARACTERS} characters"
        )
    for name in found:
        if not name or (form is not None and not form.fullmatch(name)):
            raise UsageError(
                f"annotation {key} names {name[:80]!r}, allowed are {what} with commas between"
            )
    return found


def _policy(request: PodRequest, key: str) -> Placement | None:
    value = request.annotations.get(key)
    if value is None:
        return None
    if value not in tuple(Placement):
        raise UsageError(
            f"annotation {key} is {value[:80]!r}, allowed are {' and '.join(Placement)}"
        )
    return Placement(value)


@lru_cache(4096)  # a cluster has few products, and pods few lists of patterns
def _fits_one(patterns: tuple[str, ...], product: str) -> bool:
    name = product.lower()
    return any(
        fnmatchcase(name, _literal(pattern)) if "*" in pattern else pattern in name
        for pattern in patterns
    )


def _literal(pattern: str) -> str:
    """Returns a pattern in which ``*`` alone has a meaning."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _few(names: tuple[str, ...] | list[str]) -> str:
    more = len(names) - 1
    return names[0][:60] + (f" and {more} more" if more else "")
