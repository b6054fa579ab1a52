"""MPS for the GPUs of family mps: the runner with its daemons, and the agent's side of them.

Two processes that meet in two files (`state_files`). The runner (`python -m deviceplugin.mps`) has
a thread for each GPU; in the agent, `keeper` says which GPUs are to be under MPS and waits
for them.
"""
