"""Whether this launcher is one of several of a job, which job that is, and which one of its launchers.

The variables are those of srun (Slurm's manual, "output environment variables"), torchrun
(torch/distributed/elastic/agent/server/local_elastic_agent.py), Open MPI and PMIx, MPICH's and Intel's hydra, and
the ones of ``torch.distributed``'s rendezvous ``env://``, which Kubernetes operators set as well. MPICH's variables do
not name the job; its proxy, which is the ranks' parent on every machine, is told where mpirun listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

from perfwrap.launch import proc

RANKS = (
    # Of launchers within each other the inner one's come first: its ranks are the finer ones.
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
"""What starts launchers, the variable that tells of it, and those for rank, local rank, size and restarts."""

NO_ID = ("", "none")
"""torchrun's own name for a rendezvous that nobody named."""

HYDRA_PROXY, HYDRA_PORT = "hydra_pmi_proxy", "--control-port"
"""MPICH's process on each machine of a job, and the option with mpirun's host and port (seen in 4.0.2)."""


@dataclass(frozen=True)
class Job:
    """A job of several launchers, and this one's place in it; ``rank`` is None where only the user names the job."""

    id: str
    started_by: str = ""
    rank: int | None = None
    local_rank: int | None = None
    size: int | None = None
    restart: int = 0


def find(variables: Mapping[str, str], run_id: str = "") -> Job | None:
    """Return the job that this launcher belongs to; None for one that is alone.

    ``run_id`` is what the user calls the job. Launchers whose ranks are known but whose job nobody names are taken
    as alone: two jobs must never become one run.
    """
    place = _place(variables)
    if place is None:
        return Job(run_id) if run_id else None
    found = run_id or _id(variables)
    return replace(place, id=found) if found else None


def is_unnamed_rank(variables: Mapping[str, str], run_id: str = "") -> bool:
    """Say whether this launcher is one of several of a job that nobody names."""
    return _place(variables) is not None and find(variables, run_id) is None


def _place(variables: Mapping[str, str]) -> Job | None:
    """Return this launcher's place among several, in a job yet without a name; None for one that is alone."""
    for started_by, sign, names in RANKS:
        if sign not in variables:
            continue
        rank, local_rank, size, restart = (_number(variables.get(name)) for name in names)
        if rank is not None and size is not None and size > 1:
            return Job("", started_by, rank, local_rank, size, restart or 0)
    return None


def _id(variables: Mapping[str, str]) -> str:
    """Return what all launchers of the job, and no others at the same time, call it; empty where nobody names it."""
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
    """Return what MPICH's job is called by the command line of its proxy; empty where none of them is one."""
    for words in lines:
        if PurePath(words[0]).name == HYDRA_PROXY and HYDRA_PORT in words[:-1]:
            return f"mpi-{words[words.index(HYDRA_PORT) + 1]}"
    return ""


def _number(text: str | None) -> int | None:
    """Return a variable's number; None for anything else."""
    return int(text) if text is not None and text.isdigit() else None
