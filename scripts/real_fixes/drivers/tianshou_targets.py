"""Train tianshou's TD3 on pendulums, with the networks of its test and its trainer."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch

sys.modules["gym"], sys.modules["gym.spaces"], sys.modules["gym.spaces.box"] = (
    gymnasium,
    gymnasium.spaces,
    gymnasium.spaces.box,
)

BATCH, STEPS, LENGTH, ENVIRONMENTS, EPOCHS = 128, 250, 50, 4, 4


class Pendulum:
    """A pendulum that shall stand."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def seed(self, seed: int | None = None) -> None:
        """Do nothing: the seed is given."""

    def _observation(self) -> np.ndarray:
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed])

    def reset(self) -> np.ndarray:
        """Start anywhere."""
        self.angle, self.speed = self.random.uniform(-np.pi, np.pi), self.random.uniform(-1, 1)
        self.steps = 0
        return self._observation()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """Push for a twentieth of a second."""
        push = float(np.clip(action, -2, 2)[0])
        reward = -(self.angle**2 + 0.1 * self.speed**2 + 0.001 * push**2)
        self.speed = float(np.clip(self.speed + (15 * np.sin(self.angle) + 3 * push) * 0.05, -8, 8))
        self.angle = (self.angle + self.speed * 0.05 + np.pi) % (2 * np.pi) - np.pi
        self.steps += 1
        return self._observation(), reward, self.steps >= LENGTH, {}

    def close(self) -> None:
        """Do nothing."""


def main() -> None:
    """Train, and print the time of each epoch."""
    sys.path.insert(0, "test/continuous")
    from net import Actor, Critic
    from tianshou.data import Collector, ReplayBuffer
    from tianshou.env import VectorEnv
    from tianshou.policy import TD3Policy
    from tianshou.trainer import offpolicy_trainer

    torch.manual_seed(0)
    np.random.seed(0)
    envs = [VectorEnv([lambda seed=seed: Pendulum(seed) for seed in range(ENVIRONMENTS)]) for _ in range(2)]
    actor, first, second = Actor(1, (3,), (1,), 2.0), Critic(1, (3,), (1,)), Critic(1, (3,), (1,))
    optimizers = [torch.optim.Adam(each.parameters(), lr=1e-3) for each in (actor, first, second)]
    policy = TD3Policy(
        actor,
        optimizers[0],
        first,
        optimizers[1],
        second,
        optimizers[2],
        action_range=[-2.0, 2.0],
        ignore_done=True,
    )
    collector = Collector(policy, envs[0], ReplayBuffer(20000))
    started = [time.perf_counter()]

    def start(epoch: int) -> None:
        started.append(time.perf_counter())
        if epoch > 1:
            print(f"epoch {epoch - 2} seconds {started[-1] - started[-2]:.3f}", flush=True)

    tests = Collector(policy, envs[1])
    offpolicy_trainer(policy, collector, tests, EPOCHS, STEPS, 10, 4, BATCH, train_fn=start, verbose=False)
    start(EPOCHS + 1)


if __name__ == "__main__":
    main()
