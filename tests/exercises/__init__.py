"""What every hooked row of `hooks.def` does, tried on a GPU: one file a family of rows.

`support.exercise.driver` has what an exercise is written with. They run on the simulated GPU
(`tests/native/hooks/test_exercises.py`) and on a real one (`tests/gpu/test_exercises.py`).
"""
