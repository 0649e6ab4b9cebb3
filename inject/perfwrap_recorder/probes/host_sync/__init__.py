"""Probes of calls in which the host waits for a GPU."""
