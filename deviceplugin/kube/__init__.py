"""The Kubernetes API server: Events that the agent sends, labels of pods that it asks for.

In come typed notices and the pods that have slices; out go Events and labels. Each has a thread of
its own, so that neither the kubelet's calls nor the agent's loop ever wait for the API server.
"""
