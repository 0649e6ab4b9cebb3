"""How far the training processes are, from their journals while they are written."""
