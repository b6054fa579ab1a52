"""Which config an agent starts with."""

from functools import partial

import pytest

from deviceplugin.config.overrides import said_flags
from deviceplugin.config.source import parse_text
from deviceplugin.model.agent_config import ConfigText
from deviceplugin.model.gpus import Gpu
from deviceplugin.policy.devices.first_config import Candidates
from libvgpu.errors import ConfigError

GPUS = (Gpu(0, "GPU-0", "test", 16 << 30), Gpu(1, "GPU-1", "test", 16 << 30))


def sharing(*entries: str) -> str:
    return "version: v1\nsharing:\n  fractional:\n" + "".join(f"  - {{{e}}}\n" for e in entries)


GOOD = ConfigText("/etc/c.yaml", sharing("family: vgpu, devices: [0]"))
KEPT = ConfigText("/etc/c.yaml", sharing("family: vgpu, devices: [1]"), "a100", "a label")
BAD = ConfigText("/etc/c.yaml", "version: v1\nsharring: {}\n")
MISSING = ConfigText("/etc/c.yaml", problem="config file /etc/c.yaml cannot be read: No such file")
#: Good in itself, and not for these GPUs: index and UUID are the same one.
UNFIT = ConfigText(
    "/etc/c.yaml", sharing("family: vgpu, devices: [0]", "family: mps, devices: [GPU-0]")
)
ABSENT = ConfigText("/etc/c.yaml", sharing("family: vgpu, devices: [1, 7]"))


def indexes(first_gpus: tuple[object, ...]) -> list[int]:
    return [shared.gpu.index for shared in first_gpus]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kept", [None, KEPT, UNFIT, BAD, ConfigError("damaged")])
def test_a_good_one_is_used_whatever_is_kept(kept: ConfigText | ConfigError | None) -> None:
    first = Candidates(GOOD, kept, parse_text).fit(GPUS)

    assert indexes(first.layout.gpus) == [0]
    assert (first.problem, first.kept, first.present) == (None, None, GOOD)


@pytest.mark.parametrize(
    ("present", "said"),
    [
        (BAD, "unknown key 'sharring'"),
        (MISSING, "cannot be read: No such file"),
        (UNFIT, "GPU 0 (GPU-0) is already shared"),
    ],
)
def test_where_it_is_bad_the_kept_one_is_used_and_its_problem_told(
    present: ConfigText, said: str
) -> None:
    first = Candidates(present, KEPT, parse_text).fit(GPUS)

    assert indexes(first.layout.gpus) == [1]
    assert first.kept is KEPT
    assert first.problem is not None
    assert said in first.problem.message


@pytest.mark.parametrize("present", [BAD, MISSING, UNFIT])
@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (None, ""),
        (ConfigError("/s/accepted-config.json is damaged"), "accepted-config.json is damaged"),
        (BAD, "/etc/c.yaml (kept) line 2: unknown key"),
        (UNFIT, "/etc/c.yaml (kept) line 5: GPU 0 (GPU-0) is already shared"),
    ],
)
def test_where_both_are_bad_the_sentence_says_why_of_both(
    present: ConfigText, kept: ConfigText | ConfigError | None, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Candidates(present, kept, parse_text).fit(GPUS)

    first, _, second = caught.value.message.partition("; and the config kept from before")
    assert first.startswith(("/etc/c.yaml line", "config file /etc/c.yaml"))
    assert said in second
    assert bool(said) == bool(second)


def test_no_gpu_is_asked_for_where_neither_says_anything() -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        Candidates(BAD, None, parse_text)
    with pytest.raises(ConfigError, match="cannot be used"):
        Candidates(MISSING, BAD, parse_text)


def test_a_gpu_that_is_absent_is_left_out_of_either() -> None:
    assert indexes(Candidates(ABSENT, KEPT, parse_text).fit(GPUS).layout.gpus) == [1]
    assert indexes(Candidates(BAD, ABSENT, parse_text).fit(GPUS).layout.gpus) == [1]


def test_flags_of_the_command_line_hold_for_the_kept_one_too() -> None:
    said = said_flags({}, {"NVIDIA_DRIVER_ROOT": "/driver"})

    first = Candidates(BAD, KEPT, partial(parse_text, said=said)).fit(GPUS)

    assert first.config.said == said
    assert first.config.forms != Candidates(BAD, KEPT, parse_text).fit(GPUS).config.forms
