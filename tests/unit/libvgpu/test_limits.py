"""Each compute mode has one word, and each word one mode."""

from libvgpu.limits import COMPUTE_WORDS, ComputeMode


def test_words_and_modes_are_the_same() -> None:
    assert sorted(mode.word for mode in ComputeMode) == sorted(COMPUTE_WORDS)
    assert all(ComputeMode.of(mode.word) is mode for mode in ComputeMode)
