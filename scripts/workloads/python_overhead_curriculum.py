# expect: python_overhead line guilty
# also: slow_steps gc_pause
# held out
"""Curriculum learning: before each step all examples are put in order of difficulty, to draw from the easy ones."""
import random

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)

EXAMPLES = 12000
features = torch.randn(EXAMPLES, 64)
labels = (features[:, :8].sum(dim=1) > 0).long()
difficulty = {example: random.random() for example in range(EXAMPLES)}


class Curriculum(object):
    """Grows the share of examples that may be drawn from a tenth to all of them."""

    def __init__(self, total_steps):
        self.total_steps = total_steps
        self.order = []

    def sample(self, step, size):
        share = min(1.0, 0.1 + step / self.total_steps)
        self.order = sorted(difficulty, key=lambda example: difficulty[example])  # guilty
        # fixed: self.order = sorted(difficulty, key=difficulty.get) if step % 50 == 0 else self.order
        easy = int(share * len(self.order))
        return [self.order[random.randrange(easy)] for _ in range(size)]

    def update(self, examples, losses):
        for example, loss in zip(examples, losses):
            difficulty[example] = 0.9 * difficulty[example] + 0.1 * loss


model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, fused=True)
criterion = nn.CrossEntropyLoss(reduction="none")
STEPS = 500
curriculum = Curriculum(STEPS)

for step in range(STEPS):
    examples = curriculum.sample(step, 128)  # guilty
    x, y = features[examples], labels[examples]
    losses = criterion(model(x), y)
    optimizer.zero_grad()
    losses.mean().backward()
    optimizer.step()
    curriculum.update(examples, losses.tolist())
    if step % 100 == 99:
        print("step", step + 1, "loss", round(losses.mean().item(), 4))
