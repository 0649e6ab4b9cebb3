"""Follows a run while it is running: reads new records, and determines the state of the run."""
