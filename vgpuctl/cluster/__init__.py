"""`kubectl vgpu`: what `vgpuctl` shows of one node, of many, through the API server.

`kubectl_proxy` reads the API server, and through it ports of pods (`port_forward`). `agents` says
which pod is the agent of which node, `nodes` asks them all at once for a page
(`deviceplugin.pages`), and `commands` makes of the answers the rows that `vgpuctl` makes of files.
Of the verbs `set` alone changes something: the ConfigMap of the agents' config (`config_map`,
`rule_edit`; `rule_effect` says beforehand what that means for the containers).
"""
