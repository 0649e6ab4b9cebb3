# expect: host_memory_growth line guilty
# also: data_loader_wait slow_steps worker_restart python_overhead
"""The data set remembers everything that it ever decoded, in each of its two workers."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Remembering(Dataset):
    def __init__(self, length):
        self.length = length
        self.decoded = []

    def __len__(self):
        return self.length

    def __getitem__(self, index):  # guilty
        values = [((index * 7919 + place * 31) % 1000) / 1000.0 for place in range(400)]
        self.decoded.append(values)
        return torch.tensor(values[:64]), index % 4


def main():
    torch.manual_seed(0)
    loader = DataLoader(Remembering(14400), batch_size=16, num_workers=2)
    model = nn.Sequential(nn.Linear(64, 1536), nn.ReLU(), nn.Linear(1536, 1536), nn.ReLU(), nn.Linear(1536, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()
