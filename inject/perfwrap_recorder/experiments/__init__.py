"""Machinery for experiments: changes to the program, and its end after enough steps."""
