"""The probes; one file for each thing observed."""
