# expect: healthy
"""The fixed twin of cold_reads.py: one read per sample, and the page cache holds the file."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORD, RECORDS = 4096, 4_800


class Records(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
        whole = bytearray(os.pread(self.file, RECORD, index * RECORD)[:1536])
        return torch.frombuffer(whole, dtype=torch.uint8).float() / 255, index % 10


with tempfile.NamedTemporaryFile() as file:
    for _ in range(RECORDS // 240):
        file.write(os.urandom(RECORD * 240))
    file.flush()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1536, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Records(file.name), batch_size=32, shuffle=True, num_workers=1)
    for batch, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
    print("loss", loss.item())
