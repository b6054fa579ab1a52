"""What the config says of labels: the keys of `flags.gfd`, and where labels go."""

import pytest

from deviceplugin.config.durations import parse_duration_s
from deviceplugin.config.loading import parse_config
from deviceplugin.model.label_settings import LabelSettings, LabelTarget
from libvgpu.errors import ConfigError, UsageError


def settings(text: str) -> LabelSettings:
    return parse_config(f"version: v1\n{text}", "c.yaml").labels


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60s", 60), ("1m30s", 90), ("1h", 3600), ("500ms", 0.5), ("1.5m", 90), ("+10s", 10),
        ("2h45m10.5s", 9910.5), ("100us", 1e-4), ("100µs", 1e-4), (".5s", 0.5),
        (60, 60), (1, 1), (60_000_000_000, 60), (1_000_000_000, 1),
    ],
)  # fmt: skip
def test_durations_as_go_writes_them(text: str | int, seconds: float) -> None:
    assert parse_duration_s(text, "x") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "60", "1 m", "m", "-5s", "1d", "1m30", "s60", "1,5s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"allowed is a duration such as 60s, 1m30s"):
        parse_duration_s(text, "x")


@pytest.mark.parametrize("text", ["0s", 0, -3])
def test_no_time_at_all_is_refused(text: str | int) -> None:
    with pytest.raises(UsageError, match="not above zero"):
        parse_duration_s(text, "x")


def test_a_bad_interval_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match=r"c.yaml line 4: flags.gfd.sleepInterval 'often' is no"):
        settings("flags:\n  gfd:\n    sleepInterval: often\n")


def test_what_holds_where_the_config_is_silent() -> None:
    assert settings("") == LabelSettings() == settings("flags: {gfd: {}}")
    assert settings("").target is LabelTarget.FILE
    assert settings("").output_file == "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    assert settings("").machine_type_file == "/sys/class/dmi/id/product_name"
    assert (settings("").interval_s, settings("").timestamp) == (60, True)


def test_every_key_of_gfd_counts() -> None:
    found = settings(
        "flags:\n"
        "  migStrategy: mixed\n"
        "  gfd: {oneshot: true, noTimestamp: true, sleepInterval: 1m30s, outputFile: /tmp/labels,\n"
        "        machineTypeFile: /tmp/machine}\n"
    )

    assert found == LabelSettings(
        LabelTarget.FILE, False, "/tmp/labels", "/tmp/machine", 90, True, False, "mixed"
    )


@pytest.mark.parametrize(
    ("text", "target", "is_named"),
    [
        ("flags: {useNodeFeatureAPI: true}", LabelTarget.NODE_FEATURE, True),
        ("labels: {writeTo: auto}", LabelTarget.FILE, False),
        ("labels: {writeTo: file}", LabelTarget.FILE, True),
        ("labels: {writeTo: node}", LabelTarget.NODE, True),
        ("labels: {writeTo: node-feature}", LabelTarget.NODE_FEATURE, True),
        ("labels: {writeTo: none}", LabelTarget.NONE, True),
        ("labels: {writeTo: node}\nflags: {useNodeFeatureAPI: true}", LabelTarget.NODE, True),
    ],
)
def test_where_labels_go(text: str, target: LabelTarget, is_named: bool) -> None:
    assert (settings(text).target, settings(text).is_named) == (target, is_named)


def test_another_target_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"line 2: labels.writeTo is 'nodes', allowed are: auto, file, node-feature, node, no",
    ):
        settings("labels: {writeTo: nodes}")
