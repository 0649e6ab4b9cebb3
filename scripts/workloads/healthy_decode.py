# expect: healthy
"""The fixed twin of slow_decode.py: torch decodes all pixels of a picture at once."""
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

    def __getitem__(self, index):
        value = torch.frombuffer(bytearray(self.files[index]), dtype=torch.int16).to(torch.int32) & 0xFFFF
        red, green, blue = value >> 11, value >> 5 & 63, value & 31
        return 0.299 * red / 31 + 0.587 * green / 63 + 0.114 * blue / 31, index % 10


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(SIDE * SIDE, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
pictures = DataLoader(PackedPictures(4000), batch_size=64, shuffle=True, num_workers=1, persistent_workers=True)
for epoch in range(2):
    for images, labels in pictures:
        loss = nn.functional.cross_entropy(net(images), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
print(f"{loss.item():.3f}")
