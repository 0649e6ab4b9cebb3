# expect: activation_checkpointing line guilty
# also: slow_optimizer
# twin: healthy
"""A patch classifier whose blocks were once too large for a GPU; the checkpoints are still there."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


class Patches(nn.Module):
    def __init__(self, width=128, depth=6, classes=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.head = nn.Linear(width, classes)

    def forward(self, patches):
        x = patches
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # guilty
            # fixed: x = block(x)
        return self.head(x.mean(1))


def main():
    model = Patches()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    centres = torch.randn(8, 1, 128)
    for step in range(200):
        labels = torch.randint(0, 8, (32,))
        patches = centres[labels] + torch.randn(32, 16, 128)
        patches.requires_grad_(False)
        loss = nn.functional.cross_entropy(model(patches), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
