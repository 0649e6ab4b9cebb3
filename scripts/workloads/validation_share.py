# expect: validation_share line guilty
# also: slow_steps
"""Evaluates on the whole held-out set after every twenty steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 512)
        self.second = nn.Linear(512, 10)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:  # guilty
            right += (model(x).argmax(1) == y).sum()  # guilty
    model.train()
    return right / len(loader.dataset)


def batches(data, size):
    while True:
        order = torch.randperm(len(data.tensors[0]))
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            yield data.tensors[0][chosen], data.tensors[1][chosen]


def main():
    torch.manual_seed(0)
    train = TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,)))
    held_out = DataLoader(TensorDataset(torch.randn(8192, 64), torch.randint(0, 10, (8192,))), batch_size=256)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step, (x, y) in zip(range(300), batches(train, 256)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
        # fixed: if step % 60 == 59:
            accuracy = evaluate(model, held_out)  # guilty
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
