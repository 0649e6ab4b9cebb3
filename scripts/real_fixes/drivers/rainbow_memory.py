"""Train Kaixhin/Rainbow's data-efficient agent on an environment of random frames."""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from agent import Agent
from memory import ReplayMemory

CAPACITY, FILLED, STEPS, EPOCHS = 20_000, 5_000, 30, 7
ARGUMENTS = argparse.Namespace(
    device=torch.device("cpu"),
    history_length=4,
    discount=0.99,
    multi_step=3,
    priority_weight=0.4,
    priority_exponent=0.5,
    atoms=51,
    V_min=-10.0,
    V_max=10.0,
    batch_size=128,
    norm_clip=10.0,
    model=None,
    architecture="data-efficient",
    hidden_size=64,
    noisy_std=0.1,
    learning_rate=1e-4,
    adam_eps=1.5e-4,
)


class RandomFrames:
    """An environment whose frames and rewards are random."""

    def __init__(self) -> None:
        self.state = torch.rand(4, 84, 84)

    def action_space(self) -> int:
        """Return the number of actions."""
        return 6

    def step(self, action: int) -> tuple[torch.Tensor, float, bool]:
        """Return the next state, the reward, and whether the episode ended."""
        self.state = torch.cat([self.state[1:], torch.rand(1, 84, 84)])
        return self.state, float(action == 0), np.random.random() < 0.005


def main() -> None:
    """Fill the memory, train, and print the time of each epoch."""
    torch.manual_seed(0)
    np.random.seed(0)
    environment, memory = RandomFrames(), ReplayMemory(ARGUMENTS, CAPACITY)
    agent = Agent(ARGUMENTS, environment)
    state = environment.state
    for _ in range(FILLED):
        action = np.random.randint(environment.action_space())
        following, reward, done = environment.step(action)
        memory.append(state, action, reward, done)
        state = following
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            agent.reset_noise()
            action = agent.act(state)
            following, reward, done = environment.step(action)
            memory.append(state, action, reward, done)
            agent.learn(memory)
            state, total = following, total + reward
        agent.update_target_net()
        print(f"epoch {epoch} reward {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
