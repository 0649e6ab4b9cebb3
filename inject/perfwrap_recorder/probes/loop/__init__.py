"""Probes of the training loop and of the model in it."""
