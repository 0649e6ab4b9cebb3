"""What can be recorded, and why not: on this machine, in its Pythons, in one command."""
