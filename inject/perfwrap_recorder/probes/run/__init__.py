"""Facts of the whole run: torch's version and settings."""
