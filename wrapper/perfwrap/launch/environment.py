"""What the environment contains: whether to record, whether that is already done, and what affects speed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from perfwrap.private_files import read_plain
from perfwrap.redaction import is_secret, masked

OFF = ("PERFWRAP_OFF", "PERFWRAP_DISABLE")
SETTINGS = "settings"
"""A file in a folder beside the injected sitecustomize.py; its line ``run_dir=`` names the run."""

MAX_BYTES = 1 << 20
"""Maximum size of such a file."""

PREFIXES = (
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "HIP_", "NCCL_", "GLOO_", "UCX_", "TRITON_", "KINETO_"),
    *("OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_", "VECLIB_", "MALLOC_"),
    *("TORCH", "PYTORCH_", "ACCELERATE_", "FSDP_", "DEEPSPEED_", "TOKENIZERS_PARALLELISM", "PERFWRAP_"),
    *("LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK", "OMPI_COMM_WORLD_", "PMI_RANK", "PMI_SIZE"),
    *("LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID"),
    *("SLURM_NTASKS", "SLURM_NNODES", "SLURM_CPUS_", "SLURM_GPUS", "SLURM_MEM_PER_", "SLURM_ARRAY_TASK_ID"),
    *("PYTHONUNBUFFERED", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHONMALLOC", "PYTHON_GIL"),
    *("PYTHONTRACEMALLOC", "PYTHONFAULTHANDLER", "PYTHONNODEBUGRANGES", "PYTHON_JIT"),
)
EXACT = ("RANK", "WORLD_SIZE", "LD_PRELOAD", "RAY_ADDRESS")
SECRET = re.compile(r"TOKEN(?!IZERS)|SECRET|PASSW|CREDENTIAL|_KEY|PRIVATE")
"""Parts of names that are never recorded, whatever their prefix; those of ``is_secret`` are not, either."""


def is_off(environment: Mapping[str, str]) -> bool:
    """Return whether perfwrap is disabled in this environment."""
    return any(environment.get(name) == "1" for name in OFF)


def outer_run(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the run that already records the Pythons of this environment, or None."""
    for element in environment.get("PYTHONPATH", "").split(os.pathsep):
        if element and (Path(element) / "sitecustomize.py").is_file():
            for settings in sorted(Path(element).glob(f"*/{SETTINGS}")):
                folder = _run_folder(settings)
                if folder is not None:
                    return folder
    return None


def _run_folder(settings: Path) -> Path | None:
    """Return the run folder that a settings file names, or None if it is not from perfwrap."""
    try:
        lines = read_plain(settings, MAX_BYTES).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    named = [line.partition("=")[2] for line in lines if line.startswith("run_dir=")]
    return Path(named[0]) if named else None


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that affect speed and are not private."""
    return {
        name: masked(value)
        for name, value in sorted(environment.items())
        if (name in EXACT or name.startswith(PREFIXES)) and not (SECRET.search(name) or is_secret(name))
    }
