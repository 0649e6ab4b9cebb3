"""Memory, stalls and numbers."""
