"""Every figure that the docs quote, one module per figure: ``python -m benchmarks``."""
