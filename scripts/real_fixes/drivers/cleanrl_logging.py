"""Train CleanRL's DDPG on a small system of springs in the place of a simulated robot, with its script."""

from __future__ import annotations

import runpy
import sys
import time
import types
from typing import Any

import gymnasium
import numpy as np
import torch

STEPS, EPISODE, EPISODES, OBSERVED, MOVED = 2200, 200, 1, 15, 3


class TimeLimit:
    """Springs that are pushed; each episode ends after some steps. Prints how long some episodes took."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVED,))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (MOVED,))
        self._max_episode_steps = EPISODE
        self.random = np.random.default_rng(0)
        self.springs = self.random.normal(size=(OBSERVED, OBSERVED)) * 0.1
        self.pushes = self.random.normal(size=(MOVED, OBSERVED)) * 0.1
        self.episodes, self.started = 0, time.perf_counter()

    def seed(self, seed: int) -> None:
        """Set the seed."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        """Begin an episode."""
        epoch, begun = divmod(self.episodes, EPISODES)
        if epoch and not begun:
            now = time.perf_counter()
            print(f"epoch {epoch - 1} seconds {now - self.started:.3f}", flush=True)
            self.started = now
        self.episodes, self.taken = self.episodes + 1, 0
        self.state = self.random.normal(size=OBSERVED)
        return self.state

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        """Move on."""
        pushed = np.clip(np.asarray(action, dtype=float), -1, 1) @ self.pushes
        self.state = np.tanh(self.state @ self.springs + pushed)
        self.taken += 1
        return self.state, -float(np.square(self.state).sum()), self.taken == EPISODE, {}

    def close(self) -> None:
        """Do nothing."""


class Adam(torch.optim.Adam):
    """Does not note that it changed parameters, as in PyTorch 1.4, for which the script was written."""

    def step(self, closure: Any = None) -> Any:
        """Change the parameters."""
        parameters = tuple(each for group in self.param_groups for each in group["params"])
        with torch.autograd._unsafe_preserve_version_counter(parameters):
            return super().step(closure)


def main() -> None:
    """Run the script."""
    torch.optim.Adam = Adam  # type: ignore[misc]
    gym = types.ModuleType("gym")
    gym.spaces, gym.make = gymnasium.spaces, lambda name: TimeLimit()  # type: ignore[attr-defined]
    gym.wrappers = types.ModuleType("gym.wrappers")  # type: ignore[attr-defined]
    gym.wrappers.TimeLimit, gym.wrappers.Monitor = TimeLimit, None
    sys.modules.update({"gym": gym, "gym.spaces": gym.spaces, "gym.wrappers": gym.wrappers})
    sys.modules["pybullet_envs"] = types.ModuleType("pybullet_envs")
    sys.argv[1:] = ["--gym-id", "Springs-v0", "--total-timesteps", str(STEPS), "--learning-starts", "200"]
    runpy.run_path("cleanrl/ddpg_continuous_action.py", run_name="__main__")


if __name__ == "__main__":
    main()
