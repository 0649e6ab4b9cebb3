"""Edits of how data reaches the step: DataLoaders, data sets and transfers."""
