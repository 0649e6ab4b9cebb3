"""Probes of the host."""
