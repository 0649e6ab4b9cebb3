"""Train the DDPG of abcdRL on a small system of springs, with experience that was gathered before in its memory."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import gymnasium
import numpy as np
import torch

OBSERVED, MOVED, EPISODE, GATHERED, STEPS, EPOCHS = 11, 3, 200, 100_000, 200, 6

# Only its command line and its logs need these.
sys.modules.update({name: types.ModuleType(name) for name in ("fire", "wandb")})


class Springs(gymnasium.Env[np.ndarray, np.ndarray]):
    """Springs that are pushed."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, **_: Any) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVED,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (MOVED,), np.float32)
        random = np.random.default_rng(0)
        self.springs = random.normal(size=(OBSERVED, OBSERVED)) * 0.1
        self.pushes = random.normal(size=(MOVED, OBSERVED)) * 0.1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=OBSERVED)
        return self.state.astype(np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move on."""
        self.state = np.tanh(self.state @ self.springs + np.clip(action, -1, 1) @ self.pushes)
        return self.state.astype(np.float32), -float(np.square(self.state).sum()), False, False, {}


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    from abcdrl.ddpg import Trainer

    torch.manual_seed(0)
    np.random.seed(0)
    gymnasium.register("Springs-v0", Springs, max_episode_steps=EPISODE)
    trainer = Trainer(env_id="Springs-v0", device="cpu", learning_starts=256, total_timesteps=10**9)
    random = np.random.default_rng(0)
    seen = random.normal(size=(GATHERED + 1, OBSERVED)).astype(np.float32)
    done, moves = np.zeros(GATHERED), random.uniform(-1, 1, size=(GATHERED, MOVED))
    trainer.buffer.add(seen[:-1], seen[1:], moves, -np.square(seen[1:]).sum(1), done, {})
    steps = iter(trainer())
    for epoch in range(EPOCHS):
        started, losses = time.perf_counter(), []
        while len(losses) < STEPS:
            log = next(steps)
            if log["log_type"] == "train":
                losses.append(log["logs"]["td_loss"].item())
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {sum(losses) / STEPS:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
