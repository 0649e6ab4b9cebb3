# expect: healthy
"""The fixed twin of worker_lock_contention_store.py: the store serves each worker on a connection of its own."""
import io
import os
import shutil
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class BlobStore:
    """File-backed stand-in of the store, which serves as many requests at a time as there are."""

    def __init__(self, root, latency=0.0015):
        self.root = root
        self.latency = latency

    def put(self, key, payload):
        with open(os.path.join(self.root, key), "wb") as f:
            f.write(payload)

    def get(self, key):
        time.sleep(self.latency)
        with open(os.path.join(self.root, key), "rb") as f:
            return f.read()


def fill(store, n):
    rng = np.random.default_rng(5)
    yy, xx = np.mgrid[:32, :32]
    for i in range(n):
        fx, fy, ph = rng.uniform(0.1, 0.6, 3)
        img = 127 + 100 * np.sin(fx * xx + fy * yy + 6 * ph) + rng.normal(0, 8, (32, 32))
        buf = io.BytesIO()
        np.save(buf, img.clip(0, 255).astype(np.uint8))
        store.put(f"{i:05d}", buf.getvalue())


class StoreImages(Dataset):
    def __init__(self, store, n):
        self.store, self.n = store, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        blob = self.store.get(f"{i:05d}")
        img = np.load(io.BytesIO(blob)).astype(np.float32)
        return torch.from_numpy(img / 255.0).unsqueeze(0)


class AutoEncoder(nn.Module):
    def __init__(self, ch=40, code=24):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(1, ch, 3, 2, 1), nn.ReLU(), nn.Conv2d(ch, ch * 2, 3, 2, 1),
                                 nn.ReLU(), nn.Flatten(), nn.Linear(ch * 2 * 64, code))
        self.dec = nn.Sequential(nn.Linear(code, ch * 2 * 64), nn.ReLU(), nn.Unflatten(1, (ch * 2, 8, 8)),
                                 nn.ConvTranspose2d(ch * 2, ch, 4, 2, 1), nn.ReLU(),
                                 nn.ConvTranspose2d(ch, 1, 4, 2, 1), nn.Sigmoid())

    def forward(self, x):
        return self.dec(self.enc(x))


def main():
    torch.set_num_threads(1)  # the other cores make batches
    torch.manual_seed(0)
    root = tempfile.mkdtemp(prefix="blobs_")
    store = BlobStore(root)
    fill(store, 960)
    loader = DataLoader(StoreImages(store, 960), batch_size=32, shuffle=True, num_workers=8,
                        persistent_workers=True)
    model = AutoEncoder()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(8):
        meter = 0.0
        for x in loader:
            noisy = x + 0.1 * torch.randn_like(x)
            loss = nn.functional.mse_loss(model(noisy), x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            meter += loss.item()
        print(f"epoch {epoch + 1}: mse {meter / len(loader):.5f}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
