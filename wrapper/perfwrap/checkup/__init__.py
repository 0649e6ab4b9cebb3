"""What can be recorded here, and why not: on this machine, in its Pythons, in one command."""
