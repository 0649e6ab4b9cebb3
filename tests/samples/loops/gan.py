"""A generator and a discriminator, each with its optimizer, on the same batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(80, 8)), batch_size=8)
generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
generator_optimizer = torch.optim.Adam(generator.parameters())
discriminator_optimizer = torch.optim.Adam(discriminator.parameters())
criterion = nn.BCEWithLogitsLoss()
steps = 0
for _ in range(2):
    for (real,) in loader:
        discriminator_optimizer.zero_grad()
        criterion(discriminator(real), torch.ones(len(real), 1)).backward()
        fake = generator(torch.randn(len(real), 4))
        criterion(discriminator(fake.detach()), torch.zeros(len(real), 1)).backward()
        discriminator_optimizer.step()
        generator_optimizer.zero_grad()
        criterion(discriminator(fake), torch.ones(len(real), 1)).backward()
        generator_optimizer.step()
        steps += 1
print("steps", steps)
print("epochs", 2)
