from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap import run_folder
from perfwrap.launch import environment, injection


@pytest.mark.parametrize(
    ("variables", "off"),
    [
        ({}, False),
        ({"PERFWRAP_OFF": "1"}, True),
        ({"PERFWRAP_DISABLE": "1"}, True),
        ({"PERFWRAP_OFF": "0", "PERFWRAP_DISABLE": ""}, False),
    ],
)
def test_only_a_one_switches_perfwrap_off(variables: dict[str, str], off: bool) -> None:
    assert environment.is_off(variables) is off


@pytest.mark.parametrize("previous", [{}, {"PYTHONPATH": "/a::/b:"}])
@pytest.mark.parametrize("name", ["run", "with:colon"])
def test_the_outer_run_is_found_in_the_path_that_it_prepared(
    previous: dict[str, str], name: str, tmp_path: Path
) -> None:
    folder = run_folder.create(tmp_path / name, ["x"])
    variables = injection.prepare(folder, previous)
    assert environment.outer_run(variables) == folder.path
    variables["PYTHONPATH"] = "/front:" + variables["PYTHONPATH"]
    assert environment.outer_run(variables) == folder.path


def test_other_customizing_folders_are_no_outer_run(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").touch()
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "settings").write_text("color=blue\n")
    for variables in ({}, {"PYTHONPATH": ""}, {"PYTHONPATH": f"{tmp_path}:/no/such/folder"}):
        assert environment.outer_run(variables) is None


def test_a_run_folder_that_is_gone_is_no_outer_run(tmp_path: Path) -> None:
    assert environment.outer_run({"PYTHONPATH": str(tmp_path / "gone" / "inject")}) is None


def test_what_matters_for_speed_is_kept_and_nothing_else() -> None:
    speed = {
        "CUDA_VISIBLE_DEVICES": "0",
        "OMP_NUM_THREADS": "4",
        "NCCL_DEBUG": "INFO",
        "PYTORCH_CUDA_ALLOC_CONF": "x",
        "TORCHINDUCTOR_CACHE_DIR": "/c",
        "TOKENIZERS_PARALLELISM": "false",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LD_PRELOAD": "libjemalloc.so",
    }
    other: dict[str, Any] = {
        "HOME": "/home/x",
        "PATH": "/bin",
        "HF_TOKEN": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "TORCH_HUB_TOKEN": "secret",
        "NVIDIA_API_KEY": "secret",
        "ACCELERATE_PASSWORD": "secret",
        "WANDB_API_KEY": "secret",
        "NVIDIA_APIKEY": "secret",
        "TORCH_AUTH": "secret",
        "TORCH_PWD": "secret",
        "TORCH_PW": "secret",
        "DEEPSPEED_PASS": "secret",
        "NCCL_COOKIE": "secret",
        "SLURM_JOB_USER": "me",
        "RANKING": "1",
    }
    assert environment.kept({**speed, **other}) == speed
