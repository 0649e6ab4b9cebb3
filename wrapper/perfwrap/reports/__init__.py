"""Drawings of a timeline and its diagnosis."""
