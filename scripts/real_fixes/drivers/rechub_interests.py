"""Train MIND, recommender of several interests per user of torch-rechub, with MatchTrainer on random data."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch

USERS, ITEMS, LENGTH, NEGATIVES, SAMPLES, BATCH, EPOCHS = 500, 1000, 50, 3, 8000, 256, 4


def install() -> None:
    """Write what pip writes, which the package asks for its version."""
    folder = Path("torch_rechub-0.dist-info")
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-rechub\nVersion: 0\n")


def samples() -> dict[str, np.ndarray]:
    """Return users, items they liked before, the next one, and others."""
    random = np.random.default_rng(0)
    return {
        "user_id": random.integers(1, USERS, SAMPLES),
        "hist_movie_id": random.integers(1, ITEMS, (SAMPLES, LENGTH)),
        "movie_id": random.integers(1, ITEMS, SAMPLES),
        "neg_items": random.integers(1, ITEMS, (SAMPLES, NEGATIVES)),
    }


def main() -> None:
    """Train."""
    install()
    from torch_rechub.basic.features import SequenceFeature, SparseFeature
    from torch_rechub.models.matching import MIND
    from torch_rechub.trainers import MatchTrainer
    from torch_rechub.utils.data import MatchDataGenerator

    class Trainer(MatchTrainer):  # type: ignore[misc]
        """Prints the time of each epoch."""

        def train_one_epoch(self, *arguments: object, **options: object) -> object:
            """Train for an epoch."""
            started = time.perf_counter()
            loss = super().train_one_epoch(*arguments, **options)
            print(f"Epoch took {time.perf_counter() - started:.3f} seconds", flush=True)
            return loss

    torch.manual_seed(0)
    users = [SparseFeature("user_id", vocab_size=USERS, embed_dim=16)]
    history, items, others = (
        SequenceFeature("hist_movie_id", ITEMS, embed_dim=16, pooling="concat", shared_with="movie_id"),
        SparseFeature("movie_id", vocab_size=ITEMS, embed_dim=16),
        SequenceFeature("neg_items", ITEMS, embed_dim=16, pooling="concat", shared_with="movie_id"),
    )
    model = MIND(users, [history], [items], [others], max_length=LENGTH, temperature=0.02)
    trainer = Trainer(model, mode=2, optimizer_params={"lr": 1e-3, "weight_decay": 1e-6}, n_epoch=EPOCHS)
    data = samples()
    generator = MatchDataGenerator(x=data, y=np.zeros(SAMPLES))
    test = {name: values[:BATCH] for name, values in data.items()}
    train, _, _ = generator.generate_dataloader(
        test, {"movie_id": data["movie_id"][:BATCH]}, batch_size=BATCH, num_workers=0
    )
    trainer.fit(train)


if __name__ == "__main__":
    main()
