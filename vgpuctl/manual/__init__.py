"""The man pages of `vgpuctl` and `kubectl vgpu`, made of what ``--help`` shows.

`roff` knows how text and macros are written, `page` what stands where. ``python -m vgpuctl.manual
DIRECTORY`` writes them; they have no date, so the same verbs give the same bytes. No verb imports
this.
"""
