"""What a node agent publishes, and what the extender reads of it."""

import pytest

from deviceplugin.model.chosen_gpus import ChosenGpus, chosen_gpus
from deviceplugin.pages.published import (
    FORM,
    PublishedGpu,
    PublishedNode,
    PublishedResource,
    PublishedSharing,
    PublishedSlice,
    decode,
    encode,
)

NODE = PublishedNode(
    FORM,
    "nvidia.com",
    (PublishedGpu(0, "GPU-a", "H100", 80 << 30, PublishedSharing("vgpu", 1 << 30, 80)),),
    (PublishedSlice("1f", {"GPU-a": (30, 8)}, ("team", "pod"), "main"),),
    (PublishedResource("nvidia.com/gpu", 4, 1, (("team", "other"),)),),
)


def test_what_is_published_is_read_again() -> None:
    assert decode(encode(NODE)) == NODE


def test_keys_of_a_later_release_are_left_alone() -> None:
    assert decode(encode(NODE).replace('"index":0', '"index":0,"colour":"green"')) == NODE


@pytest.mark.parametrize(
    "value",
    ["", "[]", "{}", "[" * 5000, encode(NODE).replace('"form":1', '"form":2'), '{"form":"1"}'],
)
def test_what_is_no_inventory_is_none(value: str) -> None:
    assert decode(value) is None


def test_a_choice_is_read_again() -> None:
    choice = ChosenGpus("n1", {"main": ("GPU-a", "GPU-b")})
    assert chosen_gpus(choice.encoded()) == choice


@pytest.mark.parametrize(
    "value", ["", "GPU-a", "{}", '{"node":1,"containers":{}}', "[" * 5000, " " * (1 << 20)]
)
def test_what_is_no_choice_is_none(value: str) -> None:
    assert chosen_gpus(value) is None
