"""The program's work in its loop besides forward and backward passes."""
