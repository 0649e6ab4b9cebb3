# expect: slowing_steps line guilty
# also: logging_overhead python_overhead slow_steps
# twin: healthy
"""Digits with a small ResNet; a JSON file of metrics that a dashboard reads is written every few steps."""
import json
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.second(F.relu(self.first(x))))


class ResNet(nn.Sequential):
    def __init__(self, width=24, blocks=2):
        super().__init__(
            nn.Conv2d(1, width, 3, padding=1),
            *(Block(width) for _ in range(blocks)),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(4 * width, 10),
        )


class Dashboard:
    def __init__(self, path, every=4):
        self.path, self.every = path, every
        self.rows = []

    def update(self, step, **metrics):
        self.rows.append({"step": step, **metrics})
        if len(self.rows) % self.every == 0:
            self.flush()

    def flush(self):
        with open(self.path, "w") as file:
        # fixed: with open(self.path, "a") as file:
            json.dump(self.rows, file)  # guilty
            # fixed: file.write("".join(json.dumps(row) + "\n" for row in self.rows[-self.every:]))


def per_class(logits, target):
    hits = (logits.argmax(1) == target).float()
    count = torch.bincount(target, minlength=10)
    right = torch.bincount(target, weights=hits, minlength=10)
    return (right / count.clamp(min=1)).tolist()


def train(model, images, labels, dashboard, steps=800, batch=48):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(steps):
        picked = torch.randint(0, len(images), (batch,))
        logits = model(images[picked])
        loss = F.cross_entropy(logits, labels[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            confidence = logits.softmax(1).amax(1).sort().values[::2]
        dashboard.update(
            step,
            loss=loss.item(),
            accuracy=per_class(logits, labels[picked]),
            confidence=confidence.tolist(),
            bias=model[-1].bias.tolist(),
        )


def main():
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    model = ResNet()
    with tempfile.TemporaryDirectory() as folder:
        train(model, images, labels, Dashboard(os.path.join(folder, "metrics.json")))
    with torch.no_grad():
        print(f"accuracy {(model(images).argmax(1) == labels).float().mean():.3f}")


if __name__ == "__main__":
    main()
