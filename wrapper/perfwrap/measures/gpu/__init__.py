"""Samples of the GPU's state."""
