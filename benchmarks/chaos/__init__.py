"""A node on which all is killed, stopped, filled, lost and edited, while its books must agree.

`figure` is what is run, `life` the storms and the rests between them, `faults` and `kinds` what
goes wrong. `node` has the processes, `containers` the pods, `tenants` their programs, `board` what
those say, `config` what is edited. `observed` is what is read, and `invariants` what must hold of
it, for the one-process world of the tests, too.
"""
