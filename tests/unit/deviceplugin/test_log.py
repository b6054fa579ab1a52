"""Whatever a name holds, a line of the log is one line of printable ASCII that can be read back."""

import json
import logging

import pytest

from deviceplugin.log import LOGGER, KeyValueFormatter

HOSTILE = [
    "a\x1b[2Jb",  # clears a terminal
    "\x1b]0;title\x07",
    "\x9b31mred",  # the same by one character of C1
    "abc\u202egnp.exe",  # is shown from right to left
    "a\u2028b",
    "a\x7fb",
    "a\nlevel=error msg=forged",
    "\udc80",  # a byte that is no UTF-8
    "größer",
]


def line(text: str, error: Exception | None = None) -> str:
    trace = (type(error), error, None) if error else None
    record = LOGGER.makeRecord(
        LOGGER.name, logging.INFO, "", 0, text, (), trace, extra={"fields": {"pod": text}}
    )
    return KeyValueFormatter().format(record)


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_control_character_reaches_a_terminal(text: str) -> None:
    said = line(text, ValueError(text))

    assert not [c for c in said if not " " <= c <= "~"], ascii(said)
    decode = json.JSONDecoder().raw_decode
    assert decode(said, said.index("msg=") + len("msg="))[0] == text
    assert decode(said, said.index(" pod=") + len(" pod="))[0] == text
    assert text in decode(said, said.index(" trace=") + len(" trace="))[0]


def test_a_plain_value_needs_no_quotes() -> None:
    assert line("team/a-1").endswith(' info msg="team/a-1" pod=team/a-1')
