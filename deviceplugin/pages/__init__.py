"""What an agent says to other programs: one form for each page, for its writer and its readers.

Forms are data. Who fills them in is above (`policy`, `watch`, `http`), and so is who asks for them.
Agents and readers may be of different versions: a key that came later has a default, and a reader
passes over keys that it does not know.
"""

#: In the run directory: where `vgpuctl` asks for them.
AGENT_SOCKET = "agent.sock"
