# expect: healthy
"""Two optimizers in each iteration, and a checkpoint at the very end."""
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 784), nn.Tanh())
judge = nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, fused=True)
optimizer_d = torch.optim.Adam(judge.parameters(), lr=2e-4, fused=True)
bce = nn.BCEWithLogitsLoss()
real, ones, zeros = torch.rand(128, 784), torch.ones(128, 1), torch.zeros(128, 1)

for step in range(150):
    fake = generator(torch.randn(128, 64))
    optimizer_d.zero_grad()
    loss_d = bce(judge(real), ones) + bce(judge(fake.detach()), zeros)
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = bce(judge(fake), ones)
    loss_g.backward()
    optimizer_g.step()

with tempfile.TemporaryDirectory() as folder:
    torch.save(generator.state_dict(), os.path.join(folder, "generator.pt"))
print("losses", loss_d.item(), loss_g.item())
