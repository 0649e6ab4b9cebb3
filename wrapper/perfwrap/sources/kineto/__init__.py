"""PyTorch traces (Kineto)."""
