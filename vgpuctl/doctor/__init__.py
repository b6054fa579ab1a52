"""`vgpuctl doctor`: one pure function per check over values it is given (`*_check`, `*_checks`),
and what goes and gets those values (`examine`, `examine_*`, `look` of the other files)."""
