"""The verbs of `kubectl vgpu`, one file each."""
