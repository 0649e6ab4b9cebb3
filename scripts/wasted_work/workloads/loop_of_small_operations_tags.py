# expect: loop_of_small_operations line guilty
# options: --inspect
# also: loop_in_model python_overhead slow_steps
"""Multi-label tagging of songs from descriptors; a balanced focal loss, one tag after the other."""
import torch
from torch import nn
from torch.nn import functional as F

TAGS, INPUTS = 56, 120


class BalancedFocal(nn.Module):
    """Rare tags weigh more; easy songs weigh less. The loss of each tag is normalised by the weights of its songs."""

    def __init__(self, share, gamma=2.0):
        super().__init__()
        self.register_buffer("share", share)
        self.gamma = gamma

    def forward(self, logits, truth):
        losses = []
        for tag in range(logits.shape[1]):
        # fixed: for tag in [slice(None)]:
            score, wanted = logits[:, tag], truth[:, tag]
            weight = torch.where(wanted > 0, 1 - self.share[tag], self.share[tag])  # guilty
            entropy = F.binary_cross_entropy_with_logits(score, wanted, reduction="none")  # guilty
            easy = torch.exp(-entropy)
            loss = (weight * (1 - easy) ** self.gamma * entropy).sum(0)  # guilty
            losses.append(loss / weight.sum(0))  # guilty
        return torch.stack(losses).mean()


def songs(count, generator):
    descriptors = torch.randn(count, INPUTS, generator=generator)
    direction = torch.randn(INPUTS, TAGS, generator=generator) / INPUTS**0.5
    threshold = 0.5 + torch.rand(TAGS, generator=generator)
    noise = 0.3 * torch.randn(count, TAGS, generator=generator)
    return descriptors, (torch.tanh(descriptors) @ direction + noise > threshold).float()


class Tagger(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.inlet = nn.Linear(INPUTS, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
                                    for _ in range(2))
        self.outlet = nn.Linear(width, TAGS)

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = x + block(x)
        return self.outlet(x)


def main():
    torch.manual_seed(40)
    descriptors, truth = songs(6400, torch.Generator().manual_seed(41))
    dataset = torch.utils.data.TensorDataset(descriptors, truth)
    sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 128, drop_last=True)
    loader = torch.utils.data.DataLoader(dataset, sampler=sampler, batch_size=None)
    model, criterion = Tagger(), BalancedFocal(truth.mean(0).clamp(0.02, 0.98))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        losses = []
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        print(f"epoch {epoch}: first {losses[0].item():.6f} mean {torch.stack(losses).mean().item():.6f} last {losses[-1].item():.6f}")


if __name__ == "__main__":
    main()
