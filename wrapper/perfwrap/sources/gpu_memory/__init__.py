"""Snapshots of GPU memory."""
