"""Every figure that the README quotes, one module per figure: ``python -m benchmarks``."""
