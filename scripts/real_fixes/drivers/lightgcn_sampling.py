"""Train LightGCN-PyTorch on a random set in the form of Last.fm, with the loop of its main.py."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch

USERS, ITEMS, LIKED, EPOCHS = 1892, 4489, 10, 7


def write_data(folder: Path) -> None:
    """Write the items that each user liked, and the users that he or she trusts."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    liked = [(user, item) for user in range(USERS) for item in random.choice(ITEMS, LIKED, replace=False)]
    for name, pairs in (("data1.txt", liked), ("test1.txt", liked[::10]), ("trustnetwork.txt", [(0, 1)])):
        lines = (f"{first + 1}\t{second + 1}\n" for first, second in pairs)
        (folder / name).write_text("".join(lines))


def main() -> None:
    """Train, and print the time of each epoch."""
    torch.manual_seed(0)
    np.random.seed(0)
    write_data(Path("data/lastfm"))
    sys.argv[1:] = ["--dataset", "lastfm", "--pretrain", "0", "--tensorboard", "0"]

    import dataloader
    import model
    import Procedure
    import utils
    import world

    dataset = dataloader.LastFM()
    world.config["num_users"], world.config["num_items"] = dataset.n_users, dataset.m_items
    network = model.LightGCN(world.config, dataset)
    loss = utils.BPRLoss(network, world.config)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        report = Procedure.BPR_train_original(dataset, network, loss, epoch)
        print(f"epoch {epoch} {report} seconds {time.perf_counter() - started:.3f}", flush=True)


if __name__ == "__main__":
    main()
