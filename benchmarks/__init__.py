"""Every figure that the docs quote, one module per figure: ``python -m benchmarks``.

In come a figure's name and options, out come measurements with their spread, held against the
figure's bars. One figure runs at a time; what it starts, it ends.
"""

import sys

# Here and so written that any Python can read it: an older one fails at the syntax of the others.
if sys.version_info < (3, 10):  # noqa: UP036 - a machine with a GPU has the Python it has
    sys.exit("benchmarks: Python %d.%d is too old, must be 3.10 or newer" % sys.version_info[:2])  # noqa: UP031
