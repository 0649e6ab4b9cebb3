"""Train pytorch-a2c-ppo-acktr-gail's recurrent policy by PPO, in environments that are a few lines of PyTorch."""

from __future__ import annotations

import sys
import time
import types

import torch

environments = types.ModuleType("envs")
environments.VecNormalize = type("VecNormalize", (), {})  # type: ignore[attr-defined]
sys.modules["envs"] = environments  # the project's own needs OpenAI's baselines

from algo.ppo import PPO  # noqa: E402
from model import Policy  # noqa: E402
from storage import RolloutStorage  # noqa: E402

PROCESSES, STEPS, SIZE, ACTIONS, ENDS, EPOCHS = 16, 64, 12, 4, 0.002, 8

Discrete = type("Discrete", (), {"n": ACTIONS})
"""A space of actions, known by the name of its class."""


def step(state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the next state, the reward, and which episodes go on."""
    going = (torch.rand(PROCESSES, 1) >= ENDS).float()
    reward = (action == state[:, :ACTIONS].argmax(1, keepdim=True)).float()
    return going * (0.9 * state + 0.4 * torch.randn(PROCESSES, SIZE)), reward, going


def main() -> None:
    """Train, and print the loss and the time of each update."""
    torch.manual_seed(0)
    policy = Policy((SIZE,), Discrete(), base_kwargs={"recurrent": True})
    agent = PPO(policy, 0.2, 4, 4, 0.5, 0.01, lr=7e-4, eps=1e-5, max_grad_norm=0.5)
    rollouts = RolloutStorage(STEPS, PROCESSES, (SIZE,), Discrete(), policy.recurrent_hidden_state_size)
    rollouts.obs[0].copy_(torch.randn(PROCESSES, SIZE))
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        for place in range(STEPS):
            with torch.no_grad():
                value, action, log_probability, hidden = policy.act(
                    rollouts.obs[place], rollouts.recurrent_hidden_states[place], rollouts.masks[place]
                )
            state, reward, going = step(rollouts.obs[place], action)
            rollouts.insert(state, hidden, action, log_probability, value, reward, going)
        with torch.no_grad():
            value = policy.get_value(
                rollouts.obs[-1], rollouts.recurrent_hidden_states[-1], rollouts.masks[-1]
            ).detach()
        rollouts.compute_returns(value, True, 0.99, 0.95)
        loss, *_ = agent.update(rollouts)
        rollouts.after_update()
        print(f"epoch {epoch} loss {loss:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
