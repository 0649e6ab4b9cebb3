# expect: healthy
"""REINFORCE on a made-up bandit; on a CPU, clipping one tensor after the other costs as much as one call."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(7)
policy = nn.Sequential(nn.Linear(8, 32), *(nn.Sequential(nn.Tanh(), nn.Linear(32, 32)) for _ in range(50)), nn.Linear(32, 6))
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
best = torch.randint(0, 6, (8,))
baseline = 0.0

for episode in range(400):
    context = torch.randint(0, 8, (32,))
    states = nn.functional.one_hot(context, 8).float()
    choice = Categorical(logits=policy(states))
    actions = choice.sample()
    rewards = (actions == best[context]).float()
    loss = -(choice.log_prob(actions) * (rewards - baseline)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5, foreach=False)
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
print(f"reward {baseline:.3f}")
