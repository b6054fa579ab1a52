"""The man page of `vgpuctl`, made of what ``--help`` shows.

`roff` knows how text and macros are written, `page` what stands where. ``python -m vgpuctl.manual
FILE`` writes it; it has no date, so the same verbs give the same bytes. No verb imports this.
"""
