# expect: healthy
# options: --inspect
"""A generator learns the shape of a cloud by the sliced Wasserstein distance: all sorted entries are compared."""
import torch
import torch.nn as nn

POINTS, SLICES = 512, 8


class Generator(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 3)
        )

    def forward(self, noise):
        return self.layers(noise)


def distance(made, real):
    directions = nn.functional.normalize(torch.randn(3, SLICES), dim=0)
    one, other = (made @ directions).sort(0)[0], (real @ directions).sort(0)[0]
    middle = (one[POINTS // 4 : -POINTS // 4] - other[POINTS // 4 : -POINTS // 4]).abs().mean()
    return (one - other).square().mean() + 0.1 * middle


def cloud(count):
    angle = 6.28 * torch.rand(count)
    ring = torch.stack([angle.cos(), angle.sin(), 0.2 * torch.randn(count)], 1)
    return ring + 0.05 * torch.randn(count, 3)


torch.manual_seed(100)
generator = Generator()
optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, fused=True)
for step in range(100):
    loss = distance(generator(torch.randn(POINTS, 8)), cloud(POINTS))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        print(f"step {step + 1}: loss {loss.item():.4f}")
