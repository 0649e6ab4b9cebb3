"""Several training processes: who waits for whom."""
