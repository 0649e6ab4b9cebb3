"""perfwrap: what holds an unmodified PyTorch training run back, at which line, and what the fix is worth."""

__version__ = "0.1.0.dev0"
