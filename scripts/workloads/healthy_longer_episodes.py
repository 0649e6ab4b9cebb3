# expect: healthy
"""Policy gradient on a balance task: the better the agent, the longer its episodes, and the steps with them."""
import torch
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)
policy = nn.Sequential(nn.Linear(32, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 2))
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)
for episode in range(400):
    state, chosen = torch.randn(64, 32), []
    for _ in range(4 + episode // 16):
        odds = torch.log_softmax(policy(state), 1)
        action = torch.multinomial(odds.detach().exp(), 1)
        chosen.append(odds.gather(1, action))
        state = 0.9 * state + 0.1 * torch.randn(64, 32)
    loss = -torch.stack(chosen).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}")
