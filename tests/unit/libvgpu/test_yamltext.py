"""What YAML is read as: plain data with lines, or one sentence, however deep or odd it is."""

import contextlib
import random
from typing import Any

import pytest
import yaml

from libvgpu.errors import ConfigError
from libvgpu.yamltext import MOST_DEPTH, parse

SAME = [
    "0", "7", "-3", "+4", "0x1F", "0b101", "017", "1_000", "1.5", "-0.25", ".5", "1.0e+3", ".inf",
    "-.inf", ".nan", "true", "off", "null", "~", "text", "'1'", "1Gi", "1.5.2",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_scalars_are_what_they_always_were(text: str) -> None:
    assert repr(parse(f"[{text}]", "x")[0]) == repr(yaml.safe_load(f"[{text}]"))


@pytest.mark.parametrize("text", ["1:2", "0:3", "12:30:45", "1:30.5", "2026-11-25", "2024-02-31"])
def test_base_60_and_dates_are_texts(text: str) -> None:
    found: Any = parse(f"devices: [{text}]", "x")[0]

    assert found == {"devices": [text]}


REFUSED = {
    "deep list": ("[" * 5000 + "]" * 5000, "nested more than 100 deep"),
    "deep mapping": ("{a: " * 5000 + "}" * 5000, "nested more than 100 deep"),
    "deep block": ("".join(" " * n + "-\n" for n in range(3000)), "line 101: lists and mappings"),
    "never closed": ("[" * 100_000, "nested more than 100 deep"),
    "deep by aliases": (
        "x0: &x0 [1]\n" + "".join(f"x{n + 1}: &x{n + 1} [*x{n}]\n" for n in range(3000)),
        "nested more than 100 deep",
    ),
    "many by aliases": (
        "x0: &x0 [1]\n" + "".join(f"x{n + 1}: &x{n + 1} [{f'*x{n}, ' * 10}]\n" for n in range(12)),
        "more than 1000000 values",
    ),
    "many by merges": (
        "x0: &x0 {k: 1}\n"
        + "".join(f"x{n + 1}: &x{n + 1} {{<<: [{f'*x{n}, ' * 10}]}}\n" for n in range(12)),
        "more than 1000000 values",
    ),
    "in itself": ("&a [*a]", "alias *a stands in what it names"),
    "alias of nothing": ("[*a]", "alias *a names nothing above it"),
    "merge of a number": ("<<: 5", "<< takes a mapping"),
    "key twice": (
        "a: 1\nb: 2\na: 3",
        "line 3: key 'a' occurs twice in one mapping, first on line 1",
    ),
    "key that is a list": ("[a]: 1", "a key is not text"),
    "no number": ("!!int many", "'many' cannot be read as int"),
    "no boolean": ("!!bool many", "'many' cannot be read as bool"),
    "long number": ("9" * 5000, "9… is too large a number"),
    "escape": ("a: é\nb: \x1b[31m", "line 2: not YAML: character 0x1b"),
    "nothing": ("a: 1\nb:\nc: \0", "line 3: not YAML: character 0x00"),
    "large number": ("0x" + "f" * 17, "is too large a number"),
    "tag of a program": (
        "!!python/object:os.system x",
        "tag !!python/object:os.system is not read",
    ),
    "binary": ("!!binary x", "tag !!binary is not read"),
    "no character": ('"a\\0b"', "a character that is not allowed in text"),
    "half a character": ('"a\\ud800b"', "character"),
    "tab": ("a:\n\t- b", "not YAML"),
    "two documents": ("a: 1\n---\na: 2", "line 2: a second document begins here"),
}


@pytest.mark.parametrize(("text", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_read_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "file")

    assert said in caught.value.message
    assert caught.value.message.startswith("file")


def test_what_nests_as_deep_as_allowed_is_read() -> None:
    assert parse("[" * MOST_DEPTH + "]" * MOST_DEPTH, "file")[0]


@pytest.mark.parametrize(
    "text",
    ["\ufeffa: [1, {b: c}]", "a:\r\n- 1\r\n- {b: c}\r\n", "a:\r- 1\r- b: c", "a: [1, {b: c}]"],
)
def test_marks_and_line_ends_of_other_systems_change_nothing(text: str) -> None:
    assert parse(text, "file")[0] == {"a": [1, {"b": "c"}]}


def test_aliases_and_merges_are_what_they_name() -> None:
    data, places = parse(
        "base: &base {a: 1, b: 2}\n"
        "more: &more {b: 3, c: 4}\n"
        "both: {<<: [*base, *more], d: 5}\n"
        "same: [*base, &word text, *word]\n"
        "1: {on: off}\n",
        "file",
    )

    assert data == {
        "base": {"a": 1, "b": 2},
        "more": {"b": 3, "c": 4},
        "both": {"a": 1, "b": 2, "c": 4, "d": 5},
        "same": [{"a": 1, "b": 2}, "text", "text"],
        "1": {"on": False},
    }
    assert places.line("$.both.d") == 3
    assert places.line("$.same[0].a") == 4


def test_any_bytes_give_data_or_a_sentence() -> None:
    chance = random.Random(40)
    parts = ["a", ":", " ", "\n", "- ", "[", "]", "{", "}", "&x", "*x", "<<", "!!int", "'", '"',
             "\t", "|", ">", "?", "1",
             ".", "~", "#", "%", "---", "\\0", "=", "é", "\x00", "\ufeff"]  # fmt: skip
    for _ in range(3000):
        text = "".join(chance.choices(parts, k=chance.randrange(1, 25)))
        with contextlib.suppress(ConfigError):
            parse(text, "file")
