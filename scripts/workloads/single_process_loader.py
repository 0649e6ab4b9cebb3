# expect: data_loader_single_process line guilty
"""Digits-like images augmented in Python, one by one, in the training process."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, size=4096):
        generator = torch.Generator().manual_seed(0)
        self.images = torch.rand(size, 1, 16, 16, generator=generator)
        self.labels = torch.randint(0, 10, (size,), generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if random.random() < 0.5:
            image = image.flip(-1)
        rows = image[0].tolist()
        rows = [[min(1.0, max(0.0, 1.1 * pixel - 0.05)) for pixel in row] for row in rows]
        return torch.tensor(rows).flatten(), self.labels[index]


torch.manual_seed(0)
random.seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss_function = nn.CrossEntropyLoss()
loader = DataLoader(Digits(), batch_size=64, shuffle=True)  # guilty
# fixed: loader = DataLoader(Digits(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True)

for epoch in range(3):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
