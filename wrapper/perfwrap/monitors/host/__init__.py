"""The host and its control groups."""
