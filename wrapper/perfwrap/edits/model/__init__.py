"""Edits of the model's forward pass."""
