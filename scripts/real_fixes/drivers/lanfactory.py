"""Train LANfactory's likelihood network with its own trainer on random tables."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import torch
import torch_mlp
from torch.utils.data import DataLoader

ROWS, FEATURES, BATCH, EPOCHS = 200_000, 6, 1000, 8
NETWORK = {
    "layer_sizes": [100, 100, 100, 1],
    "activations": ["tanh", "tanh", "tanh", "linear"],
    "train_output_type": "logprob",
}
TRAINING = {
    "n_epochs": EPOCHS,
    "optimizer": "adam",
    "loss": "huber",
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "lr_scheduler": None,
}


def main() -> None:
    """Write the tables and train; the trainer prints the time of each epoch."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    loaders = []
    for name, rows in (("training", ROWS), ("validation", ROWS // 20)):
        features = random.standard_normal((rows, FEATURES)).astype(np.float32)
        labels = features.sum(axis=1).astype(np.float32)
        Path(f"{name}.pickle").write_bytes(pickle.dumps({"data": features, "labels": labels}))
        dataset = torch_mlp.DatasetTorch([f"{name}.pickle"], batch_size=BATCH, label_lower_bound=-16.0)
        loaders.append(DataLoader(dataset, batch_size=None, shuffle=False))
    model = torch_mlp.TorchMLP(NETWORK, input_shape=FEATURES)
    trainer = torch_mlp.ModelTrainerTorchMLP(model, TRAINING, *loaders)
    trainer.train_and_evaluate(save_outputs=False, verbose=0)


if __name__ == "__main__":
    main()
