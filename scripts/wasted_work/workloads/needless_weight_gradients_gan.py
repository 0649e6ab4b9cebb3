# expect: needless_weight_gradients line guilty
# options: --inspect
# also: unused_work unused_gradients
"""A small convolutional GAN with the hinge loss; two updates of the generator for each update of the critic."""
import torch
from torch import nn

LATENT = 32


class Generator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.start = nn.Linear(LATENT, 2 * width * 16)
        self.layers = nn.Sequential(
            nn.ReLU(), nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 1, 4, 4), nn.Tanh()
        )

    def forward(self, z):
        return self.layers(self.start(z).view(len(z), -1, 4, 4))


class Critic(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4 * width * 16, 1)
        )

    def forward(self, pictures):
        return self.layers(pictures).squeeze(1)


def rings(count):
    """Pictures of rings of random place and size."""
    axis = torch.linspace(-1, 1, 32)
    centre, radius = 0.4 * torch.rand(count, 2, 1, 1) - 0.2, 0.3 + 0.4 * torch.rand(count, 1, 1)
    distance = ((axis[:, None] - centre[:, 0]) ** 2 + (axis[None, :] - centre[:, 1]) ** 2).sqrt()
    return (2 * torch.exp(-40 * (distance - radius) ** 2) - 1)[:, None]


class Game:
    def __init__(self, batch=32):
        self.batch = batch
        self.generator, self.critic = Generator(), Critic()
        self.generator_optimizer = torch.optim.Adam(self.generator.parameters(), lr=2e-4, betas=(0.5, 0.99))
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=2e-4, betas=(0.5, 0.99))

    def play_critic(self, real):
        with torch.no_grad():
            fake = self.generator(torch.randn(len(real), LATENT))
        loss = torch.relu(1 - self.critic(real)).mean() + torch.relu(1 + self.critic(fake)).mean()
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        return loss.item()

    def play_generator(self):
        fake = self.generator(torch.randn(self.batch, LATENT))
        # fixed: fake = self.generator(torch.randn(self.batch, LATENT)); self.critic.requires_grad_(False)
        loss = -self.critic(fake).mean()  # guilty
        self.generator_optimizer.zero_grad()
        loss.backward()  # guilty
        # fixed: loss.backward(); self.critic.requires_grad_(True)
        self.generator_optimizer.step()
        return loss.item()


def main(rounds=50):
    torch.manual_seed(90)
    pictures = rings(1000)
    game = Game()
    for number in range(rounds):
        critic = game.play_critic(pictures[torch.randint(1000, (game.batch,))])
        generator = [game.play_generator() for _ in range(2)]
        if number % 10 == 0:
            print(f"round {number}: critic {critic:.5f} generator {generator[-1]:.5f}")


if __name__ == "__main__":
    main()
