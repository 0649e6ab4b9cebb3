"""Train Stable-Baselines3's PPO with state-dependent exploration, with its zoo's settings for robots."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import gymnasium
import numpy as np

monitoring = types.ModuleType("gymnasium.wrappers.monitoring")  # which Gymnasium 1.0 took away
monitoring.video_recorder = types.SimpleNamespace(VideoRecorder=None)  # type: ignore[attr-defined]
sys.modules[monitoring.__name__] = monitoring

from stable_baselines3 import PPO  # noqa: E402
from stable_baselines3.common.callbacks import BaseCallback  # noqa: E402

STATE, ACTION, LENGTH, STEPS, ITERATIONS = 44, 17, 200, 512, 8


class Humanoid(gymnasium.Env[np.ndarray, np.ndarray]):
    """A linear system with the spaces of HumanoidBulletEnv."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (STATE,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.push = random.standard_normal((ACTION, STATE)).astype("float32") / 10

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self.steps = 0
        self.state = self.np_random.standard_normal(STATE).astype("float32")
        return self.state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move."""
        self.steps += 1
        self.state = 0.95 * self.state + action @ self.push
        return self.state, -float(np.square(self.state).mean()), False, self.steps >= LENGTH, {}


class Clock(BaseCallback):
    """Prints the time of each iteration: a rollout, and the updates after it."""

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            iteration = self.num_timesteps // STEPS - 1
            print(f"epoch {iteration} seconds {time.perf_counter() - self.started:.3f}", flush=True)
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        return True


def main() -> None:
    """Train."""
    model = PPO(
        "MlpPolicy",
        Humanoid(),
        n_steps=STEPS,
        batch_size=128,
        n_epochs=20,
        learning_rate=3e-5,
        gae_lambda=0.9,
        clip_range=0.4,
        use_sde=True,
        sde_sample_freq=4,
        policy_kwargs={
            "log_std_init": -2,
            "ortho_init": False,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
        device="cpu",
        seed=0,
    )
    model.learn(STEPS * ITERATIONS, callback=Clock())


if __name__ == "__main__":
    main()
