"""How much a JSON text holds, against what a decoder makes of it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.serving.call_body import MOST, Size, too_many
from libvgpu._native import ffi, lib
from support import IS_LONG

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['"', "\\", "[{,", ""]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=100 if IS_LONG else 15,
)


def values(found: object) -> int:
    """Returns how many values lists and objects hold; an empty one counts as one."""
    if not isinstance(found, list | dict):
        return 0
    inside = found.values() if isinstance(found, dict) else found
    return max(1, len(found)) + sum(values(each) for each in inside)


@given(st.lists(JSON) | st.dictionaries(st.text(), JSON), st.booleans(), st.sampled_from([None, 1]))
def test_values_are_counted_as_a_decoder_finds_them(
    found: list[object] | dict[str, object], is_ascii: bool, indent: int | None
) -> None:
    text = json.dumps(found, ensure_ascii=is_ascii, indent=indent).encode()
    here = ffi.from_buffer("char[]", text)

    assert lib.json_count(here, len(text), 1) == max(1, len(found))
    assert lib.json_count(here, len(text), lib.JSON_ALL_LEVELS) == values(found)


@given(st.binary(max_size=200), st.integers(0, 5))
def test_a_malformed_text_is_read_to_its_end_and_no_further(text: bytes, levels: int) -> None:
    count = lib.json_count(ffi.from_buffer("char[]", text), len(text), levels)

    assert 0 <= count <= len(text)


def test_most_is_still_taken() -> None:
    names = b"[" + b",".join([b'"n"'] * MOST) + b"]"

    assert too_many(names, Size.FLAT) == too_many(names, Size.OBJECT) == ""
    assert "it has 100001 entries, and at most 100000" in too_many(b"[1," + names[1:], Size.FLAT)
    # A large text of real objects may have more, as it has more bytes.
    assert too_many(b"[1," + names[1:], Size.OBJECTS)
    assert not too_many(b"[1," + b" " * (2 << 20) + names[1:], Size.OBJECTS)
