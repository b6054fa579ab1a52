"""Simulated MPS: the control daemon, its server process and the tool.

tool.py            the command line, ``nvidia-cuda-mps-control``
start.py           becoming the daemon
control.py         the daemon: one loop over its sockets, one server at a time
peers.py           tools, drivers and the server, as the daemon sees them
settings.py        percentages and memory limits, as the daemon hands them to a server
commands.py        what the tool can ask of the daemon
server_process.py  the server process: holds the GPUs and the connections of its clients
served_gpus.py     which GPUs there are, and taking them
wire.py            what goes over the sockets

Only the standard library is used, and nothing of this project outside this folder is imported: the
tool is started by whatever ``python3`` is in PATH.
"""
