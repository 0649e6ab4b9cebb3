"""Probes of GPUs."""
