"""Removes what the chart leaves on nodes, where `helm uninstall` is asked to (`cleanHosts`).

In: the API server, and on each node its mounts and directories. Out: nodes without our directories,
and for each that was left alone an Event that says why. One program in a Job (`cluster`) makes one
in a pod on each node (`host`); each is a single thread.
"""
