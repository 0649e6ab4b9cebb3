# expect: healthy
"""REINFORCE on a made-up bandit with one large policy, clipped in one call."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(7)
policy = nn.Sequential(nn.Linear(64, 768), nn.Tanh(), nn.Linear(768, 768), nn.Tanh(), nn.Linear(768, 6))
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
best = torch.randint(0, 6, (64,))
baseline = 0.0

for episode in range(250):
    context = torch.randint(0, 64, (128,))
    choice = Categorical(logits=policy(nn.functional.one_hot(context, 64).float()), validate_args=False)
    actions = choice.sample()
    rewards = (actions == best[context]).float()
    loss = -(choice.log_prob(actions) * (rewards - baseline)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
print(f"reward {baseline:.3f}")
