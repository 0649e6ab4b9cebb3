"""Readers of recorded formats; each ends in the timeline and knows no consumer."""
