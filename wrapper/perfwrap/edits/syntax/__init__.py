"""What edits know of a source text: its tree, its names, where values come from, and how to change statements."""
