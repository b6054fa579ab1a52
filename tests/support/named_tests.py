"""Whether the tests that SECURITY.md names ran: ``python -m support.named_tests REPORT…``.

Reports are those of pytest (``--junit-xml``). A test that was skipped did not run: it is named with
the reason, and is no failure, since a part may be missing on this machine.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from support import ROOT

_NAME = re.compile(r"`(test_\w+(?:\.py)?)`")
PASSED, FAILED = "passed", "failed"


def names_in(text: str) -> list[str]:
    """Returns the tests that a text names, and files of tests."""
    return _NAME.findall(text)


def outcomes(reports: Iterable[Path]) -> dict[str, set[str]]:
    """Returns how the cases of each test and of each file ended; of one that was skipped, why."""
    found = defaultdict(set)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
            ended = PASSED
            for child in case:
                if child.tag == "skipped":
                    ended = f"skipped: {child.get('message', '')}"
                elif child.tag in ("failure", "error"):
                    ended = FAILED
            found[case.get("name", "").partition("[")[0]].add(ended)
            found[f"{case.get('classname', '').rpartition('.')[2]}.py"].add(ended)
    return found


def judged(names: Iterable[str], ended: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """Returns what to say of tests that failed or nobody chose, and of those that were skipped."""
    wrong, skipped = [], []
    for name in sorted(set(names)):
        states = ended.get(name, set())
        if not states:
            wrong.append(f"{name} was run by none of these")
        elif FAILED in states:
            wrong.append(f"{name} failed")
        elif PASSED not in states:
            skipped.append(f"{name} did not run: {'; '.join(sorted(states))}")
    return wrong, skipped


def main(arguments: Sequence[str]) -> int:
    """Says it; returns 1 where a test failed or is run by nobody."""
    names = set(names_in((ROOT / "SECURITY.md").read_text()))
    wrong, skipped = judged(names, outcomes(map(Path, arguments)))
    ran = len(names) - len(wrong) - len(skipped)
    print(f"of {len(names)} tests that SECURITY.md names {ran} ran and passed")
    for sentence in (*skipped, *wrong):
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
