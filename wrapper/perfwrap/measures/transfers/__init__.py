"""Copies between host and GPU."""
