# expect: checkpoint_stall line guilty
# held out
"""Tiny transformer on a copy/reverse task with gradient accumulation and resumable snapshots."""
import argparse
import hashlib
import io
import os
import tempfile

import torch
from torch import nn


class Reverser(nn.Module):
    def __init__(self, vocab=64, dim=128, layers=4, seq=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(1, seq, dim) * 0.02)
        block = nn.TransformerEncoderLayer(dim, 4, dim * 4, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(block, layers)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(self.body(self.tok(ids) + self.pos))


class SnapshotManager:
    """Keeps the last few snapshots, each with a digest, so that pre-emption costs nothing."""

    def __init__(self, folder, keep=3):
        self.folder, self.keep, self.files = folder, keep, []

    def digest(self, payload):
        return hashlib.sha256(payload).hexdigest()

    def save(self, step, **objects):
        buffer = io.BytesIO()
        torch.save({"step": step, **{k: o.state_dict() for k, o in objects.items()}}, buffer)  # guilty
        payload = buffer.getvalue()
        path = os.path.join(self.folder, f"snap_{step:06d}.pt")
        with open(path, "wb") as f:
            f.write(payload)
            os.fsync(f.fileno())  # guilty
        with open(path + ".sha256", "w") as f:
            f.write(self.digest(payload))  # guilty
        with open(path, "rb") as f:
            if self.digest(f.read()) != self.digest(payload):  # guilty
                raise IOError(f"snapshot {path} is damaged")
        self.files.append(path)
        while len(self.files) > self.keep:
            old = self.files.pop(0)
            os.remove(old)
            os.remove(old + ".sha256")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=90)
    ap.add_argument("--accum", type=int, default=3)
    ap.add_argument("--micro-batch", type=int, default=8)
    ap.add_argument("--snapshot-every", type=int, default=4)
    # fixed: ap.add_argument("--snapshot-every", type=int, default=80)
    ap.add_argument("--dir", default=None)
    args = ap.parse_args()
    torch.manual_seed(0)
    model = Reverser()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.updates)
    snaps = SnapshotManager(args.dir or tempfile.mkdtemp(prefix="snaps_"))
    loss_fn = nn.CrossEntropyLoss()

    for update in range(1, args.updates + 1):
        opt.zero_grad()
        total = 0.0
        for _ in range(args.accum):
            ids = torch.randint(0, 64, (args.micro_batch, 24))
            loss = loss_fn(model(ids).flatten(0, 1), ids.flip(1).flatten())
            (loss / args.accum).backward()
            total += loss.item() / args.accum
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if update % args.snapshot_every == 0:
            snaps.save(update, model=model, optimizer=opt, scheduler=sched)  # guilty
        if update % 15 == 0:
            print(f"update {update}: loss {total:.4f} lr {sched.get_last_lr()[0]:.2e}")


if __name__ == "__main__":
    main()
