# expect: healthy
"""The fixed twin of many_workers_threads.py: one worker with one thread, as torch gives it."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Blurred(Dataset):
    def __init__(self):
        self.images = torch.rand(2048, 1, 48, 48)
        self.kernel = torch.ones(1, 1, 9, 9) / 81

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        blurred = nn.functional.conv2d(self.images[index][None], self.kernel, padding=4)[0]
        return blurred.flatten(), index % 10


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(48 * 48, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Blurred(), batch_size=32, num_workers=1, persistent_workers=True)
for epoch in range(2):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
print("loss", loss.item())
