"""What an H100 showed, measured again: on a real GPU, or on the simulated one next to it.

``rows`` and ``bench`` have shares of tenants and run them, ``played_rows`` and ``played`` launch-
bound programs, ``memory`` what is taken of the GPU, ``calls`` what calls cost, ``turns`` the time
slices of processes; each with silicon's values and tolerances. ``experiments`` asks what no real
GPU has been asked yet. ``spin_rate`` measures what makes their kernels a fixed work; ``holding``
gives tenants slices; ``figure`` holds the one against the other. Nothing here changes a setting of
the GPU.
"""
