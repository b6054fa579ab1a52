"""What schedulers ask and are told, from what is known and what the search finds; no HTTP."""
