"""Readers of recorded formats, a folder per format; each writes to the timeline."""

SOURCES = {
    "journal": "journals.run_journals",
    "kineto": "kineto.kineto_trace",
    "nsys": "nsys.nsys_export",
    "nsys_stats": "tables.nsys_stats",
    "torch_memory": "gpu_memory.torch_memory",
    "ncu": "tables.ncu_tables",
    "nvidia_smi": "tables.nvidia_smi",
    "traceml": "tables.traceml",
    "pyspy": "stack_samples.pyspy_trace",
    "speedscope": "stack_samples.speedscope",
    "collapsed": "stack_samples.collapsed",
}
"""The supported formats, in the order shown to the user, and the module of each.

All but the journal read files of other tools: ``recognises(path, head)`` detects the format by a file's first bytes,
``add(builder, path)`` adds the file to a timeline.
"""
