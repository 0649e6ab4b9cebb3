"""Times work on a GPU, and records short windows with torch's profiler and NVTX."""
