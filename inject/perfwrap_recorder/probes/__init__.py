"""The probes; one file for each thing observed.

A probe is a module with ``install(torch)``, called each time that torch has been imported, or with
``MODULES``: functions of modules that are called each time that those have been.
"""

PROBES = (
    "loop.compiler",
    "gpu.gpu_time",
    "run.torch_facts",
    "run.cell_numbers",
    "data_loading.data_loader",
    "data_loading.fetching",
    "data_loading.loader_workers",
    "loop.forward",
    "loop.backward",
    "loop.gradients",
    "loop.recomputation",
    "loop.optimizer",
    "loop.grad_scaler",
    "loop.scheduler",
    "loop.gradient_clipping",
    "loop.zero_grad",
    "host_sync.sync",
    "host_sync.waits",
    "transfers.transfers",
    "loop.serialization",
    "loop.garbage",
    "loop.compilation",
    "run.program_profiler",
    "run.stored_functions",
    "run.process_ends",
    "ranks.parallel",
    "ranks.collectives",
    "gpu.memory",
    "loop.live_graphs",
    "gpu.window",
    "host.sampler",
)
"""In the order in which they are installed; the last part of each is the name of the probe in records."""
