"""HTTP with TLS for the programs that a cluster calls: the webhook and the scheduler's extender.

In come connections of clients that nobody trusts, out go whole calls for handlers, and their
answers. Each connection has a thread; what clients may take is bounded, and `call_places` is what
the threads share, under a lock of its own.
"""
