"""The table of hooks, ``src/hooks/hooks.def``, as Python sees it: for the build, tests and docs."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parent / "src" / "hooks" / "hooks.def"
#: Per-thread default streams came with CUDA 7.0, and with them the twins of older functions.
TWINS_SINCE = 7000
COVERAGE = Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
BEGIN, END = "<!-- hooks: make fresh -->", "<!-- end of hooks -->"

#: What docs/coverage.md calls the functions of each policy that is hooked, in its order.
_DONE = {
    "CHARGED": "charged",
    "CONTEXT": "contexts, charged",
    "VIRTUAL": "show the slice",
    "TIMED": "held to the cap",
    "SYNC": "end a measurement",
    "POLL": "count as waiting",
    "CAPTURE": "known as captures",
    "LOOKUP": "hand out the hooks",
    "START": "start",
}

_ROW = re.compile(r'^ROW\((\w+),\s*"(\w*)",\s*(\d+),\s*(\w+),\s*(none|ptsz|ptds),\s*"([^"]+)"\)$')


@dataclass(frozen=True, slots=True)
class HookRow:
    """One entry point of the driver API or of NVML.

    Attributes:
        symbol: its ELF symbol.
        public_name: what ``cuGetProcAddress`` is asked for; empty where it cannot give it.
        since: CUDA version of this ABI as ``cuGetProcAddress`` counts it, 0 for NVML.
        policy: what the shim does with it, as ``hooks.def`` explains.
        twin_of: the symbol of which this is the per-thread-stream form, empty for originals.
        words: what is done, or why nothing is.
        section: the heading it stands under.
    """

    symbol: str
    public_name: str
    since: int
    policy: str
    twin_of: str
    words: str
    section: str

    @property
    def is_hooked(self) -> bool:
        """Whether the shim exports it."""
        return self.policy != "PASS"


def read_hook_table() -> tuple[HookRow, ...]:
    """Returns all rows in the table's order, each followed by its twin.

    Raises:
        ValueError: a line that begins like a row is none.
    """
    rows: list[HookRow] = []
    section = ""
    for number, line in enumerate(TABLE.read_text().splitlines(), 1):
        if heading := re.fullmatch(r"/\* ---- (.+) ---- \*/", line):
            section = heading[1]
        if not line.startswith("ROW("):
            continue
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"{TABLE}:{number}: not a row: {line}")
        symbol, public_name, since, policy, twin, words = match.groups()
        rows.append(HookRow(symbol, public_name, int(since), policy, "", words, section))
        if twin != "none":
            rows.append(
                HookRow(
                    f"{symbol}_{twin}",
                    public_name,
                    max(int(since), TWINS_SINCE),
                    policy,
                    symbol,
                    words,
                    section,
                )
            )
    return tuple(rows)


def format_table(rows: tuple[HookRow, ...]) -> str:
    """Returns a Markdown table by section: what is hooked, and each reason why others pass."""
    symbols = len(rows)
    hooked = sum(row.is_hooked for row in rows)
    lines = [
        f"{symbols} functions, each version and twin by itself; {hooked} are hooked.",
        "",
        "| Functions | Hooked | Pass | Why |",
        "|---|---|---|---|",
    ]
    for section in dict.fromkeys(row.section for row in rows):
        of_it = [row for row in rows if row.section == section]
        done = Counter(row.policy for row in of_it)
        hooks = ", ".join(
            f"{done[policy]} {words}" for policy, words in _DONE.items() if done[policy]
        )
        reasons = Counter(row.words for row in of_it if not row.is_hooked)
        first = f"| {section} ({len(of_it)}) | {hooks} |"
        for why, count in reasons.most_common() or [("", 0)]:
            lines.append(f"{first} {count} | {why} |")
            first = "| | |"
    return "\n".join(lines) + "\n"


def with_table(page: str, table: str) -> str:
    """Returns the page's text with the table between its two markers.

    Raises:
        ValueError: it has not both markers.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{COVERAGE.name} has no line {BEGIN if not begin else END}")
    return f"{before}{begin}\n{table}{end}{after}"
