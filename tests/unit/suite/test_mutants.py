"""`make mutants`: which changes there are, which are taken, and that those said to be equal are."""

import pytest

from support.mutants.__main__ import chosen, equal
from support.mutants.operators import mutants
from support.mutants.rooms import ROOMS

C = b"""\
/* if (a < 1) */
static int last(int a, const char *b)
{
    if (a < 3)
        log_line("a < 4", a);
    return find(b, a);
}
"""
PYTHON = b'''\
def last(a: int = 1, *, b: str) -> int:
    """Returns 2."""
    if a in (1, 2) and b:
        raise ValueError(f"{a + 1} < 3")
    return find(b, a)
'''


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (
            "a.c",
            C,
            {
                "operator": {"a <= 3", "a >= 3"},
                "condition": {"if (0)", "if (1)", "if (!((a < 3)))"},
                "statement": {"if (a < 3)\n;"},
                "return": {"return 0;"},
                "constant": {"a < 4)"},
                "arguments": {'log_line(a, "a < 4")', "find(a, b)"},
            },
        ),
        (
            "a.py",
            PYTHON,
            {
                "operator": {"a not in (1, 2)", ") or b:"},
                "condition": {"if True:", "if False:", "if not (a in (1, 2) and b):"},
                "statement": {"b:\npass\n"},
                "return": {"return None"},
                "constant": {"a: int = 2", "in (2, 2)", "in (1, 3)"},
                "arguments": {"find(a, b)"},
            },
        ),
    ],
)
def test_code_is_changed_and_no_comment_text_or_type(
    file: str, text: bytes, expected: dict[str, set[str]]
) -> None:
    found = mutants(file, text)

    for kind, changes in expected.items():
        texts = ["\n".join(map(str.strip, m.text.decode().splitlines())) + "\n"
                 for m in found if m.kind == kind]  # fmt: skip
        assert len(texts) == len(changes)
        assert all(sum(change in each for each in texts) == 1 for change in changes)
    assert {m.kind for m in found} == set(expected)
    assert {m.function for m in found} == {"last"}


def test_a_seed_always_chooses_the_same_of_each_kind() -> None:
    first, again, other = (chosen("journal", seed) for seed in (1, 1, 2))

    assert first == again != other
    assert {m.kind for m in first[:6]} == {m.kind for m in first}


def test_each_mutant_that_is_said_to_be_equal_is_there() -> None:
    possible = {mutant.key for room in ROOMS.values() for mutant in room.mutants()}

    assert equal().keys() <= possible
