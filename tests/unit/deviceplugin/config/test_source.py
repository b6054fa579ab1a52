"""Reading the config: one file, or a directory as the kubelet mounts a ConfigMap."""

import os
from pathlib import Path

import pytest

from deviceplugin.config.chosen import Fallback, Selection
from deviceplugin.config.loading import load_config
from deviceplugin.config.overrides import said_flags
from deviceplugin.config.reload import ConfigWatch
from deviceplugin.config.source import ConfigSource, config_names, parse_text
from libvgpu.errors import ConfigError

RULE = "version: v1\nlimits:\n- {core: %d}\n"


def mount(directory: Path, revision: str, **texts: str) -> None:
    """Puts configs into a directory as the kubelet does: links through ``..data``."""
    real = directory / f"..{revision}"
    real.mkdir(parents=True)
    for name, text in texts.items():
        (real / name).write_text(text)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(Path("..data") / name)
    fresh = directory / "..data_tmp"
    fresh.symlink_to(real.name)
    os.replace(fresh, directory / "..data")
    for link in directory.iterdir():
        if not link.name.startswith("..") and link.name not in texts:
            link.unlink()


def test_only_the_keys_of_a_configmap_are_configs(tmp_path: Path) -> None:
    mount(tmp_path, "2026_11_25", a100="version: v1\n", default="version: v1\n")
    (tmp_path / "folder").mkdir()

    assert config_names(tmp_path) == {"a100", "default"}


def test_a_file_is_read_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(RULE % 7)

    found = ConfigSource(path).read()

    assert (found.place, found.text, found.name, found.problem) == (str(path), RULE % 7, "", "")
    assert parse_text(found).rules == load_config(path).rules


def test_the_label_is_asked_for_only_of_a_directory(tmp_path: Path) -> None:
    asked = []

    def label() -> str:
        asked.append(1)
        return "b"

    mount(tmp_path / "dir", "1", a=RULE % 1, b=RULE % 2)
    (tmp_path / "file").write_text(RULE % 3)

    assert parse_text(ConfigSource(tmp_path / "file", label=label).read()).rules[0].line == 3
    assert not asked
    found = ConfigSource(tmp_path / "dir", label=label).read()
    assert (found.name, found.place) == ("b", str(tmp_path / "dir" / "b"))
    assert parse_text(found).rules[0].core_percent == 2


def test_the_empty_config_says_nothing(tmp_path: Path) -> None:
    mount(tmp_path, "1", a=RULE % 1, b=RULE % 2)

    found = ConfigSource(tmp_path, Selection(fallbacks=(Fallback.EMPTY,))).read()

    config = parse_text(found)
    assert (config.fractional, config.rules) == ((), ())
    assert (found.name, found.chosen_by) == ("", "fallback empty")


@pytest.mark.parametrize("kind", ["missing", "binary", "dangling", "empty"])
def test_what_cannot_be_read_is_a_problem_and_no_exception(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config"
    if kind == "binary":
        path.write_bytes(b"\xff\xfe")
    elif kind == "dangling":
        path.mkdir()
        (path / "default").symlink_to("..data/default")
    elif kind == "empty":
        path.mkdir()

    found = ConfigSource(path).read()

    said = {
        "missing": "cannot be read: No such file",
        "binary": "is not UTF-8",
        "dangling": "default cannot be read: No such file",
        "empty": "has no config",
    }[kind]
    assert said in found.problem
    assert (found.name, found.text) == ("default" if kind == "dangling" else "", "")
    with pytest.raises(ConfigError, match="config"):
        parse_text(found)


def test_another_choice_and_a_swapped_revision_are_changes_like_an_edit(tmp_path: Path) -> None:
    label = "a"
    mount(tmp_path, "1", a=RULE % 1, b=RULE % 1)
    source = ConfigSource(tmp_path, label=lambda: label)
    present = source.read()
    watch = ConfigWatch(source, present, parse_text(present))

    def follow() -> int | None:
        assert watch.look() is None, "a change counts once two looks see it"
        new = watch.look()
        if new is None:
            return None
        watch.take(new)
        return new.rules[0].core_percent

    assert follow() is None
    label = "b"  # the same text under another name
    assert follow() == 1
    assert watch.in_force.name == "b"
    mount(tmp_path, "2", a=RULE % 1, b=RULE % 5)
    assert follow() == 5
    mount(tmp_path, "3", a=RULE % 1)  # the chosen one is gone
    assert follow() is None
    assert watch.problem is not None
    assert "names a config that" in watch.problem.message
    assert (watch.in_force.name, watch.config.rules[0].core_percent) == ("b", 5)
    label = ""  # fallbacks: single
    assert follow() == 1
    assert watch.good
    assert watch.in_force.name == "a"


def test_flags_of_the_command_line_hold_after_a_switch_too(tmp_path: Path) -> None:
    said = said_flags({}, {"DEVICE_ID_STRATEGY": "index"})
    label = "a"
    mount(tmp_path, "1", a=RULE % 1, b=RULE % 2)
    source = ConfigSource(tmp_path, label=lambda: label)
    present = source.read()
    watch = ConfigWatch(source, present, parse_text(present, said))
    label = "b"

    new = (watch.look(), watch.look())[1]

    assert new is not None
    assert new.forms == watch.config.forms != parse_text(present).forms
