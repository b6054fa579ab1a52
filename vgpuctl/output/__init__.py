"""The JSON that verbs write, as types, and the JSON Schemas that are made of them.

`rows` has the lists of `ps`, `status`, `set`, `events` and `metrics`, `facts` those of `describe`,
`schemas` makes the files in ``docs/schemas`` (``python -m vgpuctl.output``). No verb imports these:
they say what is written, and tests hold it against them.
"""
