"""Declared MIG layouts held against the GPUs: what differs, and in which words."""

import pytest

from deviceplugin.config.loading import parse_config
from deviceplugin.model.gpus import Gpu, MigPart
from deviceplugin.policy.devices.mig_layout import mig_differences
from libvgpu.errors import ConfigError

GIB = 1 << 30


def gpu(index: int, *profiles: str, capable: bool = True, enabled: bool | None = None) -> Gpu:
    parts = tuple(
        Gpu(index, f"MIG-{index}-{n}", "A", 5 * GIB, mig=MigPart(f"GPU-{index}", n, p, n + 1, 0))
        for n, p in enumerate(profiles)
    )
    is_enabled = bool(profiles) if enabled is None else enabled
    return Gpu(
        index,
        f"GPU-{index}",
        "NVIDIA A100-SXM4-40GB" if capable else "Tesla T4",
        40 * GIB,
        is_mig_capable=capable,
        is_mig_enabled=is_enabled,
        mig_devices=parts,
    )


def differences(text: str, *gpus: Gpu) -> dict[str, str]:
    config = parse_config("version: v1\nmig:\n" + text)
    return {each.gpu.uuid: str(each) for each in mig_differences(config.mig_layouts, gpus)}


MIX = "- {profiles: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}}\n"


def test_a_gpu_that_is_cut_so_is_not_named_whatever_the_order() -> None:
    assert differences(MIX, gpu(0, "1g.5gb", "3g.20gb", "1g.5gb", "2g.10gb")) == {}


def test_what_differs_is_said_from_both_sides() -> None:
    said = differences(MIX, gpu(0, *["1g.5gb"] * 7), gpu(1), gpu(2, enabled=True))

    wish = "the config says 1 x 3g.20gb, 1 x 2g.10gb, 2 x 1g.5gb"
    assert said == {
        "GPU-0": f"it is 7 x 1g.5gb, {wish}",
        "GPU-1": f"it is not in MIG mode, {wish}",
        "GPU-2": f"it is in MIG mode, uncut, {wish}",
    }


def test_the_first_entry_for_a_gpu_counts_and_others_are_left_alone() -> None:
    text = (
        "- {devices: [0], profiles: {}}\n- {match: {product: '*A100*'}, profiles: {7g.40gb: 1}}\n"
    )

    said = differences(text, gpu(0, "7g.40gb"), gpu(1, "7g.40gb"), gpu(2, capable=False))

    assert said == {"GPU-0": "it is 1 x 7g.40gb, the config says not in MIG mode"}


def test_a_gpu_that_cannot_be_cut_says_so() -> None:
    said = differences("- {profiles: {1g.5gb: 7}}\n", gpu(0, capable=False))

    assert said["GPU-0"].endswith("; this GPU cannot be cut")


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("{profiles: {big: 1}}", "profiles names 'big', which is not a profile"),
        ("{profiles: {1c.2g.10gb: 1}}", "names '1c.2g.10gb', which is not a profile of GPU"),
        ("{profiles: {1g.5gb: 8}}", "profiles.1g.5gb is 8, allowed are 1 to 7"),
        ("{profiles: {1g.5gb: 0}}", "is 0, allowed are 1 to 7"),
        ("{devices: all}", "lacks the key 'profiles'"),
        ("{profiles: {1g.5gb: 7}, match: {mig: true}}", "match.mig cannot be set"),
    ],
)
def test_a_wrong_entry_is_refused(entry: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"version: v1\nmig:\n- {entry}\n")

    assert sentence in caught.value.message
