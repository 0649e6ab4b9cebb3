"""Probes of distributed training."""
