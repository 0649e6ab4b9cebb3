# expect: gradient_norm_per_step line guilty
# also: slow_optimizer python_overhead
# held out
"""REINFORCE on a made-up bandit, with a dictionary of each tensor's gradient and weight norm in each episode."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(7)
policy = nn.Sequential(nn.Linear(8, 32), *(nn.Sequential(nn.Tanh(), nn.Linear(32, 32)) for _ in range(40)), nn.Linear(32, 6))
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-2)
best = torch.randint(0, 6, (8,))
baseline, norms = 0.0, {}

for episode in range(300):
    context = torch.randint(0, 8, (32,))
    states = nn.functional.one_hot(context, 8).float()
    choice = Categorical(logits=policy(states))
    actions = choice.sample()
    rewards = (actions == best[context]).float()
    loss = -(choice.log_prob(actions) * (rewards - baseline)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, p in policy.named_parameters():
        norms[name] = float(p.grad.norm() / (p.detach().norm() + 1e-8))  # guilty
    baseline = 0.9 * baseline + 0.1 * rewards.mean().item()
print(f"reward {baseline:.3f} largest {max(norms.values()):.4f}")
