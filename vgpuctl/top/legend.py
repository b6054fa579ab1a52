"""What the keys and columns of `top` mean, as `?` shows it."""

LEGEND = """\
q           quit
n g m s w r order by name, GPU, memory, share, held time, refusals; again: the other way round
/           filter: Enter keeps it, Escape ends it
space       hold the screen; again: go on
arrows      scroll, as Page Up and Page Down

MEMORY      used / limit, and the last twelve looks
SHARE       percent of the GPU's compute / its cap; ~ marks an estimate
HELD        part of the time for which launches were held back
WINDOWS/s   turns on a GPU that several want
REFUSED     allocations beyond the limit; in brackets those since the last look
PROCS       processes in the slice
MODE        how compute is held now
STATE       running, idle, or what is wrong with the slice

any key     back""".splitlines()
