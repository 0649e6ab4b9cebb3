"""Sampled stacks."""
