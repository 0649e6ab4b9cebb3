"""Train ShangtongZhang/DeepRL's quantile regression DQN as on CartPole, with a task of its shape."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import numpy as np
import torch


class Anything(types.ModuleType):
    """A package that this training does not need."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in ("gym", "gym.spaces", "skimage", "skimage.color", "skimage.transform", "tensorboardX"):
    sys.modules[name] = Anything(name)

from agent.QuantileRegressionDQN_agent import QuantileRegressionDQNAgent  # noqa: E402
from component import GreedyPolicy, Replay  # noqa: E402
from network import QuantileFCNet  # noqa: E402
from utils import Config, logger  # noqa: E402

STATE, ACTIONS, LENGTH, EPISODES = 4, 2, 250, 8


class Task:
    """A drifting point that two actions push; an episode always has the same length."""

    name = "drift"

    def reset(self) -> np.ndarray:
        """Start an episode."""
        self.steps, self.state = 0, np.random.randn(STATE)
        return self.state

    def normalize_state(self, state: np.ndarray) -> np.ndarray:
        """Return the state as it is."""
        return state

    def step(self, action: int) -> tuple[np.ndarray, float, bool, None]:
        """Push the point."""
        self.steps += 1
        self.state = 0.9 * self.state + 0.1 * (2 * action - 1) + 0.1 * np.random.randn(STATE)
        return self.state, -float(np.abs(self.state).sum()), self.steps >= LENGTH, None


def main() -> None:
    """Train, and print the reward and the time of each episode."""
    torch.manual_seed(0)
    np.random.seed(0)
    config = Config()
    config.task_fn = Task
    config.num_quantiles = 20
    config.optimizer_fn = lambda params: torch.optim.RMSprop(params, 0.001)
    config.network_fn = lambda: QuantileFCNet(STATE, ACTIONS, config.num_quantiles)
    config.policy_fn = lambda: GreedyPolicy(epsilon=0.1, final_step=10000, min_epsilon=0.1)
    config.replay_fn = lambda: Replay(memory_size=10000, batch_size=10)
    config.target_network_update_freq = 200
    config.exploration_steps = 100
    config.logger = logger
    agent = QuantileRegressionDQNAgent(config)
    for episode in range(EPISODES):
        started = time.perf_counter()
        reward, _ = agent.episode()
        print(f"epoch {episode} reward {reward:.2f} seconds {time.perf_counter() - started:.3f}", flush=True)


if __name__ == "__main__":
    main()
