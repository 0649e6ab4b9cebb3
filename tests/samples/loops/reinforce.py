"""A policy that acts many times before each step of its optimizer."""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
steps = 0
for episode in range(12):
    rewards, choices = [], []
    state = torch.randn(4)
    for _ in range(5 + episode % 3):
        distribution = torch.distributions.Categorical(logits=policy(state))
        action = distribution.sample()
        choices.append(distribution.log_prob(action))
        rewards.append(float(action.item()))
        state = torch.randn(4)
    optimizer.zero_grad()
    loss = -(torch.stack(choices) * torch.tensor(rewards)).sum()
    loss.backward()
    optimizer.step()
    steps += 1
print("steps", steps)
print("validations", 0)
