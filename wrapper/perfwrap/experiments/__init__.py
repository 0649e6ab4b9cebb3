"""What a fix is worth, measured: the unmodified program with one injected change at a time."""
