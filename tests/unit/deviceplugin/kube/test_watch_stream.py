"""The lines of a watch."""

import pytest

from deviceplugin.kube.api_client import ApiUnreachable
from deviceplugin.kube.watch_stream import any_object, lines


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_the_same_however_they_come(size: int) -> None:
    text = b"one\n\ntwo two\nthree\nnot whole"
    chunks = [text[at : at + size] for at in range(0, len(text), size)]

    assert list(lines(chunks)) == [b"one", b"two two", b"three"]


@pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11 + b"\n"]])
def test_a_line_without_end_is_not_kept(chunks: list[bytes]) -> None:
    assert list(lines([b"y" * 10 + b"\n"], 10)) == [b"y" * 10]
    with pytest.raises(ApiUnreachable, match="longer than 10 bytes"):
        list(lines(chunks, 10))


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"metadata": 1}', b"[" * 5000, b"\xff"])
def test_nothing_is_read_of_a_malformed_object(content: bytes) -> None:
    assert any_object(content).metadata.resource_version == ""
