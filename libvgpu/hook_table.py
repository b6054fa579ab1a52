"""The table of hooks, ``src/hooks.def``, as Python sees it: for tests, benchmarks and README."""

import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).resolve().parent / "src" / "hooks.def"
#: Per-thread default streams came with CUDA 7.0, and with them the twins of older functions.
TWINS_SINCE = 7000

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


def read_hook_table(path: Path = TABLE) -> tuple[HookRow, ...]:
    """Returns all rows in the table's order, each followed by its twin.

    Raises:
        ValueError: a line that begins like a row is none.
    """
    rows: list[HookRow] = []
    section = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if heading := re.fullmatch(r"/\* ---- (.+) ---- \*/", line):
            section = heading[1]
        if not line.startswith("ROW("):
            continue
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"{path}:{number}: not a row: {line}")
        symbol, public_name, since, policy, twin, words = match.groups()
        rows.append(HookRow(symbol, public_name, int(since), policy, "", words, section))
        if twin != "none":
            rows.append(
                HookRow(f"{symbol}_{twin}", public_name, max(int(since), TWINS_SINCE), policy,
                        symbol, words, section)
            )  # fmt: skip
    return tuple(rows)
