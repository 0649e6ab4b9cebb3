"""Whether this launcher is one of several of a job, which job, and which of its launchers.

The variables are those of srun (Slurm's manual, "output environment variables"), torchrun
(torch/distributed/elastic/agent/server/local_elastic_agent.py), Open MPI and PMIx, MPICH's and Intel's hydra, and
those of ``torch.distributed``'s rendezvous ``env://``, which Kubernetes operators set as well. MPICH's variables do
not name the job; the command line of its proxy, the parent of the ranks on every machine, has the address of mpirun.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from perfwrap.launch import proc

RANKS = (
    # For nested launchers the inner one comes first, because it starts the ranks.
    ("torchrun", "TORCHELASTIC_RUN_ID", ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")),
    (
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", ""),
    ),
    ("mpirun", "PMI_RANK", ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "")),
    (
        "srun",
        "SLURM_STEP_ID",
        ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_RESTART_COUNT"),
    ),
    ("env", "MASTER_ADDR", ("RANK", "LOCAL_RANK", "WORLD_SIZE", "")),
)
"""The starters of launchers, the variable that identifies each, and those for rank, local rank, size and restarts."""

NO_ID = ("", "none")
"""torchrun's name for a rendezvous without a name."""

HYDRA_PROXY, HYDRA_PORT = "hydra_pmi_proxy", "--control-port"
"""MPICH's process on each machine of a job, and the option with mpirun's host and port (seen in 4.0.2)."""


@dataclass(frozen=True)
class Job:
    """A job of several launchers, and this one's place in it; ``rank`` is None if only the user names the job."""

    id: str
    started_by: str = ""
    rank: int | None = None
    local_rank: int | None = None
    size: int | None = None
    restart: int = 0


def find(variables: Mapping[str, str], run_id: str = "") -> Job | None:
    """Return the job that this launcher belongs to; None if it is the only one.

    ``run_id`` is the user's name of the job. Launchers with known ranks but without a name of the job count as single:
    two jobs must never become one run.
    """
    place = _place(variables)
    if place is None:
        return Job(run_id) if run_id else None
    found = run_id or _id(variables)
    return replace(place, id=found) if found else None


def is_unnamed_rank(variables: Mapping[str, str], run_id: str = "") -> bool:
    """Return whether this launcher is one of several of a job without a name."""
    return _place(variables) is not None and find(variables, run_id) is None


def _place(variables: Mapping[str, str]) -> Job | None:
    """Return this launcher's place among several, in a job without a name yet; None if it is the only one."""
    for started_by, sign, names in RANKS:
        if sign not in variables:
            continue
        rank, local_rank, size, restart = (_number(variables.get(name)) for name in names)
        if rank is not None and size is not None and size > 1:
            return Job("", started_by, rank, local_rank, size, restart or 0)
    return None


def _id(variables: Mapping[str, str]) -> str:
    """Return the name of the job, unique among simultaneous jobs; empty if it has none."""
    if "SLURM_JOB_ID" in variables and "SLURM_STEP_ID" in variables:
        return f"slurm-{variables['SLURM_JOB_ID']}.{variables['SLURM_STEP_ID']}"
    if variables.get("TORCHELASTIC_RUN_ID", "") not in NO_ID:
        return f"torchrun-{variables['TORCHELASTIC_RUN_ID']}"
    for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"):
        if variables.get(name):
            return f"mpi-{variables[name]}"
    hydra = hydra_id(proc.ancestors()) if "PMI_RANK" in variables else ""
    if hydra:
        return hydra
    address, port = variables.get("MASTER_ADDR"), variables.get("MASTER_PORT")
    return f"{address}-{port}" if address and port else ""


def hydra_id(lines: Iterable[list[str]]) -> str:
    """Return the name of an MPICH job from the command line of its proxy; empty without a proxy."""
    for words in lines:
        if PurePath(words[0]).name == HYDRA_PROXY and HYDRA_PORT in words[:-1]:
            return f"mpi-{words[words.index(HYDRA_PORT) + 1]}"
    return ""


def _number(text: str | None) -> int | None:
    """Return the number in a variable; None for anything else."""
    return int(text) if text is not None and text.isdecimal() else None
