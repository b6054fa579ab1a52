"""The mutating webhook, for clusters without MutatingAdmissionPolicy.

The API server sends each new pod that asks for GPUs; back goes a patch with what such a pod needs
on our nodes and does not say itself. It has no state, asks nobody and needs no GPU.
"""
