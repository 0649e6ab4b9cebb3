"""What the recorder wrote about models is read into one structure per model."""

from __future__ import annotations

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.models import Gradients, Model, find_devices, find_models
from perfwrap.measures.trainers import find_trainers


def read(run, facts: dict[str, str]) -> tuple[tuple[Model, ...], frozenset[str]]:
    """Return the models and their devices in a process with these facts."""
    journal = run.journal()
    journal.step()
    for key, value in facts.items():
        journal.fact(key, value)
    evidence = Evidence(run.read())
    (trainer,) = evidence.get(find_trainers)
    return evidence.get(find_models, trainer), evidence.get(find_devices, trainer)


def test_each_fact_of_a_model_has_its_type(run) -> None:
    facts = {
        "class": "train.Net",
        "parameters": "1230",
        "device": "cuda:0",
        "dtypes": "torch.float32 1200, torch.float64 30",
        "channels_last": "3 of 20",
        "gradients": "8 1000 2 40 layers.0.weight",
        "embeds": "True",
        "skips_padding": "False",
        "mixes_positions": "True",
    }
    models, devices = read(run, {f"model/Net/{key}": value for key, value in facts.items()})
    assert models == (
        Model(
            "Net",
            kind="train.Net",
            parameters=1230,
            device="cuda:0",
            elements={"torch.float32": 1200, "torch.float64": 30},
            channels_last="3 of 20",
            gradients=Gradients(8, 1000, 2, 40, "layers.0.weight"),
            embeds=True,
            skips_padding=False,
            mixes_positions=True,
        ),
    )
    assert devices == {"cuda:0"}


def test_what_was_not_recorded_or_is_damaged_is_none_or_empty(run) -> None:
    damaged = {"model/Net/parameters": "12x", "model/Net/gradients": "8 1000", "model/Net/dtypes": "float"}
    models, devices = read(run, {"model/Loss/autocast": "off", **damaged, "optimizer/SGD#1/parameters": "3"})
    assert models == (Model("Loss", autocast="off"), Model("Net"))
    assert devices == set()
