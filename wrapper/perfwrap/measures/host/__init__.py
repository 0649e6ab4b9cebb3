"""CPU and processes of the machine."""
