"""Five critic steps for each of the generator's, on samples that are drawn; a critic step is a step."""

import torch
from torch import nn

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
generator_optimizer = torch.optim.RMSprop(generator.parameters(), lr=5e-5)
critic_optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
steps = 0
for _ in range(6):
    for _ in range(5):
        critic_optimizer.zero_grad()
        fake = generator(torch.randn(16, 4)).detach()
        (critic(fake).mean() - critic(torch.randn(16, 8)).mean()).backward()
        critic_optimizer.step()
        steps += 1
    generator_optimizer.zero_grad()
    (-critic(generator(torch.randn(16, 4))).mean()).backward()
    generator_optimizer.step()
print("steps", steps)
