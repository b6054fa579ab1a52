"""Every figure that the docs quote, one module per figure: ``python -m benchmarks``.

In come a figure's name and options, out come measurements with their spread, held against the
figure's bars. One figure runs at a time; what it starts, it ends.
"""
