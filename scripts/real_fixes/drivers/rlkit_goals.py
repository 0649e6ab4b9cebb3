"""Train rlkit's SAC with hindsight goals on a point that shall reach one, with the parts of its FetchReach example."""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch

sys.modules["gym"], sys.modules["gym.spaces"] = gymnasium, gymnasium.spaces
if not hasattr(np, "int"):
    np.int = int  # Which NumPy had when the project was written.

STEPS, TRAININGS, BATCH, HIDDEN, EPOCHS = 50, 120, 1024, [64, 64], 4


class Point:
    """A point in space, which each action moves."""

    def __init__(self) -> None:
        box = gymnasium.spaces.Box(-10, 10, (3,))
        self.observation_space = gymnasium.spaces.Dict(
            {"observation": gymnasium.spaces.Box(-10, 10, (10,)), "desired_goal": box, "achieved_goal": box}
        )
        self.action_space = gymnasium.spaces.Box(-1, 1, (3,))
        self.random = np.random.default_rng(0)

    def _observation(self) -> dict[str, np.ndarray]:
        observation = np.concatenate((self.place, self.place, self.place, [1.0]))
        return {"observation": observation, "desired_goal": self.goal, "achieved_goal": self.place}

    def reset(self) -> dict[str, np.ndarray]:
        """Put the point and the goal anywhere."""
        self.place, self.goal = self.random.uniform(-1, 1, (2, 3))
        return self._observation()

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, dict[str, Any]]:
        """Move."""
        self.place = self.place + 0.1 * action
        return self._observation(), -float(np.linalg.norm(self.place - self.goal)), False, {}

    def compute_rewards(self, actions: np.ndarray, observations: dict[str, np.ndarray]) -> np.ndarray:
        """Return the rewards of many steps."""
        return -np.linalg.norm(observations["achieved_goal"] - observations["desired_goal"], axis=1)


def main() -> None:
    """Train, and print the time of each epoch."""
    from rlkit.data_management.obs_dict_replay_buffer import ObsDictRelabelingBuffer
    from rlkit.samplers.data_collector import GoalConditionedPathCollector
    from rlkit.torch.her.her import HERTrainer
    from rlkit.torch.networks import ConcatMlp
    from rlkit.torch.sac.policies import MakeDeterministic, TanhGaussianPolicy
    from rlkit.torch.sac.sac import SACTrainer
    from rlkit.torch.torch_rl_algorithm import TorchBatchRLAlgorithm

    torch.manual_seed(0)
    np.random.seed(0)
    env = Point()
    keys = {"observation_key": "observation", "desired_goal_key": "desired_goal"}
    buffer = ObsDictRelabelingBuffer(
        max_size=100_000, env=env, fraction_goals_rollout_goals=0.2, achieved_goal_key="achieved_goal", **keys
    )
    critics = [ConcatMlp(input_size=10 + 3 + 3, output_size=1, hidden_sizes=HIDDEN) for _ in range(4)]
    policy = TanhGaussianPolicy(obs_dim=10 + 3, action_dim=3, hidden_sizes=HIDDEN)
    names = ("qf1", "qf2", "target_qf1", "target_qf2")
    trainer = SACTrainer(env=env, policy=policy, **dict(zip(names, critics, strict=True)))
    algorithm = TorchBatchRLAlgorithm(
        trainer=HERTrainer(trainer),
        exploration_env=env,
        evaluation_env=env,
        exploration_data_collector=GoalConditionedPathCollector(env, policy, **keys),
        evaluation_data_collector=GoalConditionedPathCollector(env, MakeDeterministic(policy), **keys),
        replay_buffer=buffer,
        batch_size=BATCH,
        max_path_length=STEPS,
        num_epochs=EPOCHS,
        num_eval_steps_per_epoch=2 * STEPS,
        num_expl_steps_per_train_loop=4 * STEPS,
        num_trains_per_train_loop=TRAININGS,
        min_num_steps_before_training=40 * STEPS,
    )
    started = [time.perf_counter()]

    def end(_: Any, epoch: int) -> None:
        started.append(time.perf_counter())
        print(f"epoch {epoch} seconds {started[-1] - started[-2]:.3f}", flush=True)

    algorithm.post_epoch_funcs.append(end)
    algorithm.train()


if __name__ == "__main__":
    main()
