"""Follows a run while it is running: reads what is new, and knows how the run stands."""
