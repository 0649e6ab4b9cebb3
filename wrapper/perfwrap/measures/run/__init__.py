"""The run as a whole: its start, its epochs, its overview."""
