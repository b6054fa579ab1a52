"""`vgpuctl doctor`: one pure function per check over values it is given (`node_checks`,
`agent_checks`), and what goes and gets those values (`examine`)."""
