"""The processes of the run."""
