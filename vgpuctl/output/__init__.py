"""The JSON that verbs write, as types, and the JSON Schemas that are made of them.

`rows` has the lists of most verbs, `facts` those of `describe`, `simulated` that of `sim list`,
`schemas` makes the files in ``docs/schemas`` (``python -m vgpuctl.output``). No verb imports these:
they say what is written, and tests hold it against them.
"""
