"""Makes the history of a violation small: ``python shrink.py SUMMARY.json [flags of the judge]``.

``SUMMARY.json`` is what the judge printed. Any part of a history is a history, so steps are left
out as long as the same rule is still broken, from halves down to single steps, and then containers
of pods. Each attempt has an agent of its own; where the order of a pair is left to Go's maps, it is
repeated a few times. Prints the history that is left, one step a line.
"""

import copy
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.cluster.devicemanager import build, judged_node, run_judge

REPEATS = 3
ATTEMPT_S = 300.0

Steps = list[dict[str, Any]]


class Shrinker:
    """Attempts at one violation."""

    def __init__(self, rule: str, flags: list[str]) -> None:
        self.judge, self.rule, self.flags = build(), rule, flags
        self.said = ""

    def fails(self, steps: Steps) -> bool:
        """Returns whether this history still breaks the rule."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(steps, file)
            file.flush()
            for _ in range(REPEATS):
                with judged_node() as base:
                    verdict = run_judge(
                        self.judge, base, f"--history={file.name}", *self.flags, timeout_s=ATTEMPT_S
                    )
                violation = verdict.summary.get("violation")
                if violation and violation["rule"] == self.rule:
                    self.said = violation["text"]
                    return True
        return False

    def fewer_steps(self, steps: Steps) -> Steps:
        """Returns a history that breaks the rule and of which no single step can be left out."""
        size = max(1, len(steps) // 2)
        while True:
            start, removed = 0, False
            while start < len(steps):
                candidate = steps[:start] + steps[start + size :]
                if candidate and self.fails(candidate):
                    steps, removed = candidate, True
                    print(f"{len(steps)} steps", file=sys.stderr)
                else:
                    start += size
            if size == 1 and not removed:
                return steps
            size = max(1, size // 2)

    def fewer_containers(self, steps: Steps) -> Steps:
        """Returns it with containers and interruptions left out too."""
        for number, step in enumerate(steps):
            for smaller in _without_one(step):
                candidate = [*steps[:number], smaller, *steps[number + 1 :]]
                if self.fails(candidate):
                    return self.fewer_containers(candidate)
        return steps


def _without_one(step: dict[str, Any]) -> Steps:
    found = []
    if step.get("interruption"):
        found.append({key: value for key, value in step.items() if key != "interruption"})
    for pod, spec in enumerate(step.get("pods", [])):
        if len(step["pods"]) > 1:
            smaller = copy.deepcopy(step)
            del smaller["pods"][pod]
            found.append(smaller)
        for container in range(len(spec["containers"])):
            if len(spec["containers"]) > 1:
                smaller = copy.deepcopy(step)
                del smaller["pods"][pod]["containers"][container]
                found.append(smaller)
    return found


def main() -> None:
    summary = json.loads(Path(sys.argv[1]).read_text())
    shrinker = Shrinker(summary["violation"]["rule"], sys.argv[2:])
    steps: Steps = summary["history"]
    # What went wrong rarely began long ago.
    for length in (4, 8, 16, 32, 64, 128, 256):
        if length < len(steps) and shrinker.fails(steps[-length:]):
            steps = steps[-length:]
            break
    else:
        if not shrinker.fails(steps):
            sys.exit("the history does not break the rule again")
    steps = shrinker.fewer_containers(shrinker.fewer_steps(steps))
    print(f"{shrinker.rule}: {shrinker.said}")
    for step in steps:
        print(json.dumps(step))


if __name__ == "__main__":
    main()
