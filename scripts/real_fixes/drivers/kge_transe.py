"""Train TransE on a random knowledge graph with LibKGE, which ranks all entities after each epoch."""

from __future__ import annotations

import collections
import collections.abc
import sys
import time
import types
from pathlib import Path

import numpy as np
import torch

ENTITIES, RELATIONS, TRIPLES, JUDGED, EPOCHS = 1000, 20, 6000, 200, 7

collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
# Of a search for settings that this training does not do.
search = types.ModuleType("kge.job.ax_search")
search.AxSearchJob = None  # type: ignore[attr-defined]
sys.modules["kge.job.ax_search"] = search


def write_data(folder: Path) -> None:
    """Write random triples, and the names of what they are about."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, number in (("train", TRIPLES), ("valid", JUDGED), ("test", JUDGED)):
        heads, tails = random.integers(ENTITIES, size=(2, number))
        lines = (
            f"{a}\t{r}\t{b}\n"
            for a, r, b in zip(heads, random.integers(RELATIONS, size=number), tails, strict=True)
        )
        (folder / f"{name}.del").write_text("".join(lines))
    for name, number in (("entity_map", ENTITIES), ("relation_map", RELATIONS)):
        (folder / f"{name}.del").write_text("".join(f"{place}\t{name}{place}\n" for place in range(number)))


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    np.random.seed(0)
    from kge import Config, Dataset
    from kge.job import Job

    write_data(Path("data/random"))
    config = Config()
    config.load("examples/toy-transe-train.yaml")
    settings = {"job.device": "cpu", "dataset.name": "random", "train.max_epochs": EPOCHS, "valid.every": 1}
    for key, value in {**settings, "eval.batch_size": 100, "eval.trace_level": "epoch"}.items():
        config.set(key, value)
    config.folder = "run"
    config.init_folder()
    job = Job.create(config, Dataset.load(config))
    job.epoch_started = time.perf_counter()

    def report(job: Job, found: dict[str, float]) -> None:
        seconds, rank = time.perf_counter() - job.epoch_started, found["mean_reciprocal_rank"]
        print(f"\nepoch {job.epoch - 1} reciprocal rank {rank:.4f} seconds {seconds:.3f}", flush=True)
        job.epoch_started = time.perf_counter()

    job.post_valid_hooks.append(report)
    job.run()


if __name__ == "__main__":
    main()
