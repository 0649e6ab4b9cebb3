# expect: healthy
# options: --inspect
"""A GAN for short heart beats: the critic sees detached fakes, and takes no gradients while the generator learns."""
import math

import torch
from torch import nn
from torch.nn import functional as F

LENGTH, LATENT = 128, 24


def beats(count):
    time = torch.linspace(-1, 1, LENGTH)
    height, shift = 0.8 + 0.4 * torch.rand(count, 1), 0.1 * torch.randn(count, 1)
    peak = height * torch.exp(-((time - shift) ** 2) / 0.003)
    wave = 0.25 * torch.exp(-((time - shift - 0.45) ** 2) / 0.02) + 0.12 * torch.exp(-((time - shift + 0.35) ** 2) / 0.01)
    return (peak + wave - 0.15 * torch.cos(math.pi * time))[:, None] + 0.02 * torch.randn(count, 1, LENGTH)


generator_layers = [
    nn.Linear(LATENT, 64 * 16), nn.Unflatten(1, (64, 16)), nn.ReLU(), nn.ConvTranspose1d(64, 32, 4, 2, 1), nn.ReLU(),
    nn.ConvTranspose1d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose1d(16, 1, 4, 2, 1)
]
critic_layers = [
    nn.Conv1d(1, 24, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv1d(24, 48, 5, 2, 2), nn.LeakyReLU(0.2), nn.Conv1d(48, 64, 5, 2, 2), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(64 * 16, 1)
]


def main():
    torch.manual_seed(61)
    data = beats(2000)
    generator, critic = nn.Sequential(*generator_layers), nn.Sequential(*critic_layers)
    optimizers = {
        "generator": torch.optim.Adam(generator.parameters(), lr=3e-4, betas=(0.5, 0.999)),
        "critic": torch.optim.Adam(critic.parameters(), lr=3e-4, betas=(0.5, 0.999)),
    }
    for step in range(100):
        real = data[torch.randint(len(data), (64,))]
        fake = generator(torch.randn(64, LATENT))

        loss_critic = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        optimizers["critic"].zero_grad()
        loss_critic.backward()
        optimizers["critic"].step()

        critic.requires_grad_(False)
        loss_generator = F.softplus(-critic(fake)).mean()
        optimizers["generator"].zero_grad()
        loss_generator.backward()
        optimizers["generator"].step()
        critic.requires_grad_(True)
        if step % 25 == 0:
            print(f"{step} critic {loss_critic.item():.4f} generator {loss_generator.item():.4f}")


if __name__ == "__main__":
    main()
