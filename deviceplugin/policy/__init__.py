"""Every decision of the agent, as pure functions: who gets which units, and which limits hold.

In come config, layout, allocations, listings and moments; out come choices, or an
`AllocationRefused` with the reason as a message. No I/O, no CUDA, no gRPC, no clock, no lock: the
caller (`core`) holds the agent's lock.
"""
