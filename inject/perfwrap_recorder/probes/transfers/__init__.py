"""Probes of copies between devices."""
