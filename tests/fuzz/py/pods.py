"""Pods as the API server sends them: amounts, annotations, and the stream that they come in."""

import contextlib
import json

import msgspec
from msgspec import inspect

from deviceplugin.kube.api_client import ApiUnreachable
from deviceplugin.kube.pod_wire import Pod, pod_request, row_of, trimmed
from deviceplugin.kube.quantity import MOST_UNITS, unit_count, whole_amount
from deviceplugin.kube.watch_stream import any_object, lines
from deviceplugin.model.chosen_gpus import ChosenGpus, chosen_gpus
from deviceplugin.scheduler.search.wishes import wishes_of
from fuzz.shapes import Shapes, words_of
from libvgpu.decoding import json_decoder
from libvgpu.errors import VgpuError

_DOMAIN = "nvidia.com"
_POD, _CHOICE = inspect.type_info(Pod), inspect.type_info(ChosenGpus)
_ANNOTATIONS = [f"{_DOMAIN}/vgpu.{name}" for name in (
    "gpus", "use-gpu-models", "avoid-gpu-models", "use-gpus", "avoid-gpus", "node-policy",
    "gpu-policy")]  # fmt: skip
_WORDS = [*dict.fromkeys(words_of(_POD)), *_ANNOTATIONS, f"{_DOMAIN}/vgpu-core", "Always", "100",
          f"{_DOMAIN}/vgpu-memory", "1k", "2Ki", "1e3", "+.5", "1m", "9E", "2026-11-28T00:00:00Z",
          "GPU-1,MIG-2", "h100*,a*", "spread", "binpack", "Succeeded", "a,,b"]  # fmt: skip
_DECODE = json_decoder(Pod).decode


def one(data: bytes) -> None:
    """Reads one pod, an amount and a stream of them."""
    shapes = Shapes(data)
    how = shapes.byte()
    if how & 3 == 3:
        _stream(shapes)
        return
    _amount(shapes.text(_WORDS) if how & 4 else shapes.number())
    content = shapes.like(_POD, _WORDS)
    if isinstance(content, dict) and how & 8:
        choice = json.dumps(shapes.like(_CHOICE, _WORDS))
        values = [shapes.text(_WORDS) for _ in _ANNOTATIONS]
        annotations = dict(zip(_ANNOTATIONS, [choice, *values[1:]], strict=True))
        kept = {k: v for n, (k, v) in enumerate(annotations.items()) if how >> (n + 1) & 1}
        limits = {f"{_DOMAIN}/vgpu-core": shapes.text(_WORDS)}
        content["metadata"] = {"uid": "u", "annotations": kept}
        content["spec"] = {"initContainers": [{"resources": {"limits": limits}}]}
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        _pod(_DECODE(shapes.rest() if how & 16 else json.dumps(content)))


def _pod(pod: Pod) -> None:
    row_of(pod, _DOMAIN)
    with contextlib.suppress(VgpuError):
        request = pod_request(pod, _DOMAIN)
        if request is not None:
            for each in request.containers:
                assert all(0 < amount <= MOST_UNITS for amount in each.amounts.values())
            wishes = wishes_of(request, _DOMAIN)
            wishes.allow("NVIDIA H100", "GPU-1")
            wishes.described()
            if request.chosen is not None:
                assert chosen_gpus(request.chosen.encoded()) == request.chosen
    trimmed(pod, _DOMAIN)


def _amount(written: str | int) -> None:
    with contextlib.suppress(VgpuError):
        assert 0 <= whole_amount(written) < 1 << 63
    with contextlib.suppress(VgpuError):
        assert 0 <= unit_count(written) <= MOST_UNITS


def _stream(shapes: Shapes) -> None:
    chunks = [shapes.some() for _ in range(shapes.byte() % 8)]
    with contextlib.suppress(ApiUnreachable):
        found = list(lines(iter(chunks), 64))
        assert all(b"\n" not in each and len(each) <= 64 for each in found)
        for each in found:
            any_object(each)
