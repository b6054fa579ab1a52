"""`vgpuctl describe`: all that is known of one container, or of one GPU.

`container` and `gpu` gather facts as mappings (which ``-o json`` shows whole), `verdict` says what
they mean, `text` writes them for people.
"""
