"""Stacks sampled by py-spy."""
