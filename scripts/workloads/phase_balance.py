# expect: phase_balance
# also: slow_start
"""A frozen network is run in each forward pass, so that the forward pass takes far longer than the backward pass."""

import torch
from torch import nn


class WithTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Sequential(*[nn.Linear(512, 512) for _ in range(12)]).requires_grad_(False)
        self.head = nn.Linear(512, 10)

    def forward(self, x):
        with torch.no_grad():
            features = self.frozen(x)
        return self.head(features)


torch.manual_seed(0)
model = WithTeacher()
optimizer = torch.optim.SGD(model.head.parameters(), lr=1e-2)
data, labels = torch.randn(64, 128, 512), torch.randint(0, 10, (64, 128))
for step in range(200):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data[step % 64]), labels[step % 64])
    loss.backward()
    optimizer.step()
print("loss", loss.item())
