# expect: storage_bound_input line guilty
# also: data_loader_wait slow_steps
"""Each sample is put together from many small reads at random places of a file that no cache holds."""
import os
import random
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORD, READS, RECORDS = 4096, 24, 24_000


class Records(Dataset):
    """Gives up what it has read, as the page cache does with a data set that is larger than the memory."""

    def __init__(self, path):
        self.path = path
        self.file = None

    def __len__(self):
        return RECORDS

    def __getitem__(self, index):  # guilty
        if self.file is None:
            self.file = os.open(self.path, os.O_RDONLY)
            os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_RANDOM)
        whole = bytearray()
        for _ in range(READS):
            place = random.randrange(RECORDS) * RECORD
            whole += os.pread(self.file, RECORD, place)[:64]  # guilty
            os.posix_fadvise(self.file, place, RECORD, os.POSIX_FADV_DONTNEED)
        return torch.frombuffer(whole, dtype=torch.uint8).float() / 255, index % 10


with tempfile.NamedTemporaryFile() as file:
    for _ in range(RECORDS // 240):
        file.write(os.urandom(RECORD * 240))
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64 * READS, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Records(file.name), batch_size=32, shuffle=True, num_workers=1)
    for step, (batch, labels) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        if step == 100:
            break
    print("loss", loss.item())
