"""Two workers whose collate function takes longer than their samples."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Samples(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 2


def collate(samples):
    sum(range(200_000))
    return torch.stack([row for row, _ in samples]), torch.tensor([target for _, target in samples])


torch.manual_seed(0)
loader = DataLoader(Samples(), batch_size=4, num_workers=2, persistent_workers=True, collate_fn=collate)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
steps = 0
for _ in range(2):
    for inputs, targets in loader:
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
print("steps", steps)
print("epochs", 2)
