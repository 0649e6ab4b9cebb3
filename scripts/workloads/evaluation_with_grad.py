# expect: evaluation_with_grad line guilty
# also: slow_steps
"""Evaluates in eval() but without no_grad(): every forward pass keeps what a backward pass would need."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(4),
        )  # fmt: skip
        self.head = nn.Linear(16 * 64, 10)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def evaluate(model, loader):
    model.eval()
    right = 0
    for x, y in loader:  # guilty
        right += (model(x).argmax(1) == y).sum()  # guilty
    model.train()
    return right / len(loader.dataset)


def main():
    torch.manual_seed(0)
    images, labels = torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))
    train = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    held_out = DataLoader(TensorDataset(images[:192], labels[:192]), batch_size=64)
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(5):
        for x, y in train:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} accuracy {evaluate(model, held_out):.3f}")


if __name__ == "__main__":
    main()
