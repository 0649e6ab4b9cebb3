"""The probes; one file for each thing observed.

A probe is a module with ``install(torch)``, called each time that torch has been imported, or with
``MODULES``: functions of modules that are called each time that those have been.
"""

PROBES = (
    "compiler",
    "gpu_time",
    "torch_facts",
    "data_loader",
    "fetching",
    "loader_workers",
    "forward",
    "backward",
    "optimizer",
    "grad_scaler",
    "scheduler",
    "gradient_clipping",
    "zero_grad",
    "sync",
    "waits",
    "transfers",
    "serialization",
    "garbage",
    "compilation",
    "parallel",
    "collectives",
    "memory",
    "live_graphs",
    "window",
    "sampler",
)
"""In the order in which they are installed."""
