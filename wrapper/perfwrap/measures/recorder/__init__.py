"""The cost of perfwrap itself, and its recording windows."""
