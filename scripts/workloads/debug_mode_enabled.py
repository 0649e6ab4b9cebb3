# expect: debug_mode_enabled line guilty
# also: slow_optimizer
"""A GAN that was debugged one evening; anomaly detection has been on ever since."""
import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)  # guilty
torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh())
judge = nn.Sequential(nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))
optimizer_g = torch.optim.SGD(generator.parameters(), lr=2e-3)
optimizer_d = torch.optim.SGD(judge.parameters(), lr=2e-3)
bce = nn.BCEWithLogitsLoss()
real, ones, zeros = torch.rand(64, 64), torch.ones(64, 1), torch.zeros(64, 1)

for step in range(300):
    fake = generator(torch.randn(64, 32))
    optimizer_d.zero_grad()
    loss_d = bce(judge(real), ones) + bce(judge(fake.detach()), zeros)
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = bce(judge(fake), ones)
    loss_g.backward()
    optimizer_g.step()
print("losses", loss_d.item(), loss_g.item())
