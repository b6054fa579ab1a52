"""What every hooked row of `hooks.def` does, tried on a GPU: one file a family of rows.

`support.exercise` has what an exercise is written with. `tests/native/hooks/test_exercises.py` runs
them on the simulated GPU, `tests/gpu/test_exercises.py` (`make test-gpu`) on a real one.
"""
