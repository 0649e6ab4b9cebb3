"""Nsight Systems captures, exported to SQLite."""
