"""The agent's service: answers the kubelet, brings limits into force, follows podresources.

In come calls of `kubelet`, `http` and the agent's loop; out go answers, and changes of `store`.
Every change is made under the lock of `store.node_state`.
"""
