"""Writes settings that affect speed: precision, determinism, debugging aids, environment, and lines that set them.

Instruments the setters among them that are written in Python, to learn the line that called them:
``torch.set_float32_matmul_precision``, ``__init__`` of ``torch.autograd.detect_anomaly`` and ``set_detect_anomaly``,
``torch.cuda.set_sync_debug_mode``. For the program's profiler ``program_profiler.py`` does so.

Values are read, never taken from the setters: by ``torch_facts.look``, after a model or an optimizer was
first used and every ten seconds, so a setting that is changed and changed back in between is not seen.
Assignments (``torch.backends.cudnn.benchmark = True``) have no setter, and torch.use_deterministic_algorithms is
part of compiled graphs: for these the value is known, but not the line.
"""

from __future__ import annotations

import os

from perfwrap_recorder import guard
from perfwrap_recorder.gpu import devices, profiler_window
from perfwrap_recorder.instrumenting import timing
from perfwrap_recorder.journal import facts
from perfwrap_recorder.program import source_lines

SETTERS = (
    ("", "set_float32_matmul_precision", "float32_matmul_precision"),
    ("autograd.anomaly_mode.detect_anomaly", "__init__", "anomaly_detection"),
    ("autograd.anomaly_mode.set_detect_anomaly", "__init__", "anomaly_detection"),
    ("cuda", "set_sync_debug_mode", "sync_debug_mode"),
)
"""Owner and name of a setter, and the fact that it changes; the line is the fact with ``/line`` added."""

VARIABLES = (
    *(
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_MODULE_LOADING",
        "CUBLAS_WORKSPACE_CONFIG",
    ),
    *(
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_HIP_ALLOC_CONF",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
    ),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_CUDNN_V8_API_DISABLED"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_WAIT_POLICY"),
    *("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME", "MALLOC_CONF"),
    *("TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_SHM_DISABLE"),
    *("NCCL_BLOCKING_WAIT", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_LOGS", "TORCH_COMPILE_DISABLE"),
    *("TORCHDYNAMO_DISABLE", "TORCH_SHOW_CPP_STACKTRACES", "PYTORCH_JIT", "PYTHONTRACEMALLOC"),
)
"""Environment variables of this process, which its program may have set itself."""

MAX_VALUE_LENGTH = 200

AUTOCAST_DEVICES = ("cuda", "cpu", "xpu", "mps")


def install(torch):
    """Start to record the lines of setters."""
    for path, name, key in SETTERS:
        owner = torch
        for part in path.split(".") if path else ():
            owner = getattr(owner, part, None)
        if owner is not None:
            timing.time_calls(torch, getattr(owner, name, None), "setters", _finish_with(key))


def look(torch):
    """Write the settings that have changed."""
    for ask in (_ask_precision, _ask_determinism, _ask_debugging, _ask_environment):
        guard.run(ask.__name__[1:], ask, torch)


def look_at_autocast(torch, name, is_training):
    """Write under which autocast the model of that name is called by this thread."""
    found = "off"
    if hasattr(torch, "get_autocast_dtype"):
        chosen = devices.current is not None and devices.current.is_chosen
        for device in AUTOCAST_DEVICES + ((devices.current.kind,) if chosen else ()):
            if torch.is_autocast_enabled(device):
                found = "%s %s" % (device, torch.get_autocast_dtype(device))
                break
    elif torch.is_autocast_enabled():
        found = "cuda %s" % torch.get_autocast_gpu_dtype()
    elif torch.is_autocast_cpu_enabled():
        found = "cpu %s" % torch.get_autocast_cpu_dtype()
    facts.write("model/%s/autocast%s" % (name, "" if is_training else "_in_evaluation"), found)


def _ask_precision(torch):
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set for each backend, in the newer way that has no common value
        precision = "by backend"
    facts.write("float32_matmul_precision", precision)
    facts.write("default_dtype", torch.get_default_dtype())
    # The older functions warn in some versions that have the newer one.
    ask = getattr(torch._C, "_get_fp32_precision_getter", None)
    if ask:
        facts.write("tf32_matmul", ask("cuda", "matmul") == "tf32")
        facts.write("tf32_cudnn", ask("cuda", "conv") == "tf32")
    else:
        facts.write("tf32_matmul", torch._C._get_cublas_allow_tf32())
        facts.write("tf32_cudnn", torch._C._get_cudnn_allow_tf32())


def _ask_determinism(torch):
    facts.write("deterministic", torch.are_deterministic_algorithms_enabled())
    facts.write("deterministic_warn_only", torch.is_deterministic_algorithms_warn_only_enabled())
    facts.write("cudnn_benchmark", torch.backends.cudnn.benchmark)
    facts.write("cudnn_deterministic", torch.backends.cudnn.deterministic)
    facts.write("cudnn_enabled", torch.backends.cudnn.enabled)


def _ask_debugging(torch):
    facts.write("anomaly_detection", torch.is_anomaly_enabled())
    look_at_profiler(torch)
    # Its public name would start CUDA.
    ask = getattr(torch._C, "_cuda_get_sync_debug_mode", None)
    if ask and torch.cuda.is_initialized():
        facts.write("sync_debug_mode", ask())


def look_at_profiler(torch):
    """Write whether a profiler of the program records at present."""
    facts.write("user_profiler", bool(torch.autograd._profiler_enabled()) and not profiler_window.is_open())


def _ask_environment(_):
    # Not by methods of os.environ, which are in Python: Dynamo would trace them within a compiled region.
    known = getattr(os.environ, "_data", {})
    for name in VARIABLES:
        value = known.get(name.encode())
        if value is not None:
            facts.write("env/" + name, value.decode("utf-8", "surrogateescape")[:MAX_VALUE_LENGTH])


def _finish_with(key):
    def finish(frame, *_):
        write_line(key, frame)

    return finish


def write_line(key, frame):
    """Write the user's line as the one that set a setting."""
    if source_lines.is_torch_internal(frame):  # each worker of a loader sets its number of threads
        return
    place = source_lines.find_place(frame)
    if place:
        facts.write(key + "/line", place)
