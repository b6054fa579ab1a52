"""Runs the steps of one file, in a process of the framework's own Python, and waits after each.

Arguments: the file, and ``slow`` for its slow steps too. The file has ``STEPS`` and may have
``SLOW_STEPS``: pairs of a name and a function. After each step one line of JSON says its name, and
why it failed if it did; the next begins when a line comes in. So somebody can look at the GPU in
between. A file that cannot be loaded says so in one line without a name; the last line says "end".

Nothing of this project is imported, and any Python from 3.9 on reads it.
"""

import json
import os
import runpy
import sys


def main() -> int:
    # A framework may print what it likes; the lines are for who started us.
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what: object) -> None:
        lines.write(json.dumps(what) + "\n")
        lines.flush()

    try:
        loaded = runpy.run_path(sys.argv[1])
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")
        return 1
    steps = list(loaded["STEPS"])
    if "slow" in sys.argv[2:]:
        steps += loaded.get("SLOW_STEPS", [])
    for name, step in steps:
        try:
            step()
        except Exception as error:
            say(step=name, error=f"{type(error).__name__}: {error}")
        else:
            say(step=name)
        if not sys.stdin.readline():
            return 0
    say(end=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
