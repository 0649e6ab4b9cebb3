"""Figures worked out from the timeline; one file each."""
