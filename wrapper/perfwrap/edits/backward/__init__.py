"""Edits of which gradients are computed, and how often."""
