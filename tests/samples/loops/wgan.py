"""A critic that is trained on every batch and a generator on every fifth; a batch is a step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=4)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
steps = 0
for number, (real,) in enumerate(loader):
    critic_optimizer.zero_grad()
    fake = generator(torch.randn(len(real), 4)).detach()
    (critic(fake).mean() - critic(real).mean()).backward()
    critic_optimizer.step()
    for parameter in critic.parameters():
        parameter.data.clamp_(-0.01, 0.01)
    steps += 1
    if number % 5 == 4:
        generator_optimizer.zero_grad()
        (-critic(generator(torch.randn(len(real), 4))).mean()).backward()
        generator_optimizer.step()
print("steps", steps)
