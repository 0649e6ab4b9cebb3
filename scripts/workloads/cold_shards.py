# expect: storage_bound_input line guilty
# held out
# also: data_loader_wait slow_steps
"""Two workers stream samples out of large uncompressed shards, past the page cache (O_DIRECT)."""
import mmap
import os
import tempfile

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

PIECE, PIECES = 512 * 1024, 96


class Shards(IterableDataset):
    def __init__(self, path, rounds):
        self.path, self.rounds = path, rounds

    def pieces(self):
        shard = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, PIECE)
        info = get_worker_info()
        for number in range(info.id, PIECES * self.rounds, info.num_workers):
            os.preadv(shard, [buffer], number % PIECES * PIECE)  # guilty
            yield buffer
        os.close(shard)

    def __iter__(self):  # guilty
        for buffer in self.pieces():
            yield torch.frombuffer(bytearray(buffer[:2048]), dtype=torch.uint8).float() / 255


class Autoencoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(2048, 256)
        self.decoder = torch.nn.Linear(256, 2048)

    def forward(self, x):
        return self.decoder(torch.relu(self.encoder(x)))


def fit(path):
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for batch in DataLoader(Shards(path, 100), batch_size=32, num_workers=2):
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    with tempfile.NamedTemporaryFile(dir=os.path.expanduser("~")) as file:
        for _ in range(PIECES):
            file.write(os.urandom(PIECE))
        file.flush()
        os.fsync(file.fileno())
        print("loss", fit(file.name))
