# expect: slow_item line guilty
# also: data_loader_wait slow_steps too_few_workers
"""Pictures are kept as packed bytes and decoded pixel by pixel, in Python; all cores are busy with it."""
import struct

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 28


class PackedPictures(Dataset):
    def __init__(self, size):
        generator = torch.Generator().manual_seed(0)
        pixels = torch.randint(0, 65536, (size, SIDE * SIDE), generator=generator)
        self.files = [struct.pack(f"<{SIDE * SIDE}H", *row) for row in pixels.tolist()]

    def __len__(self):
        return len(self.files)

    def decode(self, packed):
        pixels = []
        for (value,) in struct.iter_unpack("<H", packed):
            red, green, blue = value >> 11, value >> 5 & 63, value & 31  # guilty
            grey = 0.299 * red / 31 + 0.587 * green / 63 + 0.114 * blue / 31  # guilty
            pixels.append(grey)  # guilty
        return pixels

    def __getitem__(self, index):  # guilty
        return torch.tensor(self.decode(self.files[index])), index % 10


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, 10))
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
pictures = DataLoader(PackedPictures(8000), batch_size=64, shuffle=True, num_workers=2, drop_last=True)
for epoch in range(2):
    for images, labels in pictures:
        loss = nn.functional.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
print(f"{loss.item():.3f}")
