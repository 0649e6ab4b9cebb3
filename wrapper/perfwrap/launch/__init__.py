"""Start the command as without perfwrap, and wait for it."""
