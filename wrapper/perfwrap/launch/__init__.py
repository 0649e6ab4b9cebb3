"""Start the command as if perfwrap were not there, and wait for it."""
