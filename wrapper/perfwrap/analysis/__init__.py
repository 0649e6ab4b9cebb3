"""Read a recorded run and diagnose it: what commands, exporters and the Python API share."""
