"""The hub: one model of what happened, whatever recorded it."""
