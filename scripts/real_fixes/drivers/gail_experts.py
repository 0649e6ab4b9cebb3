"""Train the discriminator of pytorch-a2c-ppo-acktr-gail on expert trajectories from a file, as its main.py does."""

from __future__ import annotations

import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch


def stand_in(name: str, **names: Any) -> None:
    """Put a module in the place of one whose package this training does not need."""
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)


class RunningMeanStd:
    """Part of the reward, which this training does not ask for."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.var = np.ones((1, *shape))


for package in ("h5py", "baselines", "baselines.common"):
    stand_in(package)
stand_in("baselines.common.running_mean_std", RunningMeanStd=RunningMeanStd)
stand_in("a2c_ppo_acktr.envs", VecNormalize=object)

from a2c_ppo_acktr.algo import gail  # noqa: E402
from a2c_ppo_acktr.storage import RolloutStorage  # noqa: E402

TRAJECTORIES, LENGTH, STATE, ACTION, STEPS, PROCESSES, BATCH, EPOCHS = 20, 1000, 17, 6, 128, 8, 128, 9

Box = type("Box", (), {"shape": (ACTION,)})
"""A space of actions, known by the name of its class."""


def expert(states: np.ndarray, update: bool) -> np.ndarray:
    """Return the states as they are, where the project scales them like those of the policy."""
    return states


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    trajectories = {
        "states": torch.randn(TRAJECTORIES, LENGTH, STATE) + 1,
        "actions": torch.rand(TRAJECTORIES, LENGTH, ACTION),
        "lengths": torch.full((TRAJECTORIES,), LENGTH),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trajectories.pt"
        torch.save(trajectories, file)
        dataset = gail.ExpertDataset(file, num_trajectories=TRAJECTORIES, subsample_frequency=20)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True)
    rollouts = RolloutStorage(STEPS, PROCESSES, (STATE,), Box(), 1)
    rollouts.obs.normal_()
    rollouts.actions.uniform_()
    discriminator = gail.Discriminator(STATE + ACTION, 100, "cpu")
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        for _ in range(5):
            loss = discriminator.update(loader, rollouts, expert)
        print(f"epoch {epoch} loss {loss:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
