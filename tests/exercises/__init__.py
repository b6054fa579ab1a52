"""What every hooked row of `hooks.def` does, tried on the simulated GPU: one file a family of rows.

`support.exercise` has what an exercise is written with; `tests/native/hooks/test_exercises.py` runs
them.
"""
