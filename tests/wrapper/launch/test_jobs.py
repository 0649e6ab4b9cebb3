"""Which job a launcher is of is read from what its starters set; two jobs never become one."""

from __future__ import annotations

import pytest
from perfwrap.launch.jobs import Job, find, hydra_id, is_unnamed_rank

SRUN = {"SLURM_JOB_ID": "47", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}
TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "RANK": "5",
    "LOCAL_RANK": "2",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
}


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "4"}, Job("slurm-47.0", "srun", 3, 1, 4)),
        (TORCHRUN, Job("node0-29500", "torchrun", 5, 2, 8, 1)),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "it"}, Job("torchrun-it", "torchrun", 5, 2, 8, 1)),
        # torchrun's workers within a step of srun's: all ranks of the step are torchrun's.
        (
            {**SRUN, "SLURM_STEP_NUM_TASKS": "4", **TORCHRUN},
            Job("slurm-47.0", "torchrun", 5, 2, 8, 1),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "2",
                "PMIX_NAMESPACE": "prterun-n-7@1",
            },
            Job("mpi-prterun-n-7@1", "mpirun", 1, 0, 2),
        ),
    ],
)
def test_the_starters_variables_name_the_job_and_the_place_in_it(variables: dict[str, str], job: Job) -> None:
    assert find(variables) == job
    assert find({}, "mine") == Job("mine")
    named = find(variables, "mine")
    assert named is not None and (named.id, named.rank) == ("mine", job.rank)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        # A batch script of Slurm's, which runs one thing after another.
        {"SLURM_JOB_ID": "47", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"},
        {**SRUN, "SLURM_STEP_NUM_TASKS": "1"},
        # Ranks of a job without a name.
        {"PMI_RANK": "0", "PMI_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "2"},
    ],
)
def test_a_single_launcher_and_a_job_without_a_name_join_no_job(variables: dict[str, str]) -> None:
    assert find(variables) is None


def test_a_job_of_mpich_is_named_after_its_proxys_arguments() -> None:
    proxy = ["/usr/bin/hydra_pmi_proxy", "--control-port", "vm:40115", "--rmk", "user", "--proxy-id", "0"]
    shell = ["bash", "-c", "mpirun -np 2 perfwrap run -- python train.py --control-port vm:1"]
    assert hydra_id([shell, proxy, ["mpirun", "-np", "2"]]) == "mpi-vm:40115"
    assert hydra_id([shell, proxy[:2], [""]]) == ""


def test_a_rank_whose_job_has_no_name_is_distinguished_from_a_single_launcher() -> None:
    ranks = {"PMI_RANK": "0", "PMI_SIZE": "4"}
    assert is_unnamed_rank(ranks)
    assert not is_unnamed_rank(ranks, "mine")
    assert not is_unnamed_rank({**ranks, "PMI_SIZE": "1"})
    assert not is_unnamed_rank({})
