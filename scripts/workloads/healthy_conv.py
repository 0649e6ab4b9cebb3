# expect: healthy
"""A small convolutional network on tensors that are ready in memory, with a light validation per epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 8 * 8, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(x.flatten(1))


def train(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


def test(model, x, y):
    model.eval()
    with torch.inference_mode():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
    held_out = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
    model = ConvNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    for epoch in range(4):
        loss = train(model, loader, optimizer)
        print(f"epoch {epoch} loss {loss:.4f} accuracy {test(model, *held_out):.3f}")


if __name__ == "__main__":
    main()
