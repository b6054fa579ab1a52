"""What an H100 showed, measured again: on a real GPU, or on the simulated one next to it.

``rows`` has what silicon showed, with tolerances; ``bench`` runs tenants and tells how much each
got done; ``figure`` holds the one against the other. Nothing here changes a setting of the GPU.
"""
