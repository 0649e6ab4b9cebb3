# expect: metrics_each_step line guilty
# options: --inspect
"""A small image denoiser; the quality on a few fixed images is computed in every step and printed every 40 steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

EVERY = 40


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, x):
        return x - self.body(x)


def pictures(count, generator, size=32):
    y, x = torch.meshgrid(torch.linspace(0, 1, size), torch.linspace(0, 1, size), indexing="ij")
    waves = torch.rand(count, 3, 1, 1, generator=generator) * 12
    return (torch.sin(waves[:, 0] * x + waves[:, 1] * y) * torch.cos(waves[:, 2] * y)).unsqueeze(1)


def ssim(a, b, window=7):
    mean = lambda t: F.avg_pool2d(t, window, 1)
    ma, mb = mean(a), mean(b)
    va, vb, cov = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    return ((2 * ma * mb + 1e-4) * (2 * cov + 9e-4) / ((ma * ma + mb * mb + 1e-4) * (va + vb + 9e-4))).mean()


@torch.no_grad()
def quality(model, noisy, clean):
    model.eval()
    restored = model(noisy)
    model.train()
    return ssim(restored, clean).item()


def main(steps=240, batch=24):
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(2)
    clean = pictures(600, generator)
    fixed_clean = pictures(32, generator)
    fixed_noisy = fixed_clean + 0.3 * torch.randn(fixed_clean.shape, generator=generator)
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    for step in range(steps):
        target = clean[torch.randint(len(clean), (batch,), generator=generator)]
        noisy = target + 0.3 * torch.randn(target.shape, generator=generator)
        loss = F.mse_loss(model(noisy), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        score = quality(model, fixed_noisy, fixed_clean)  # guilty
        # fixed: score = quality(model, fixed_noisy, fixed_clean) if step % EVERY == EVERY - 1 else None
        if step % EVERY == EVERY - 1:
            print(f"step {step + 1}: loss {loss.item():.5f}, SSIM {score:.4f}")


if __name__ == "__main__":
    main()
