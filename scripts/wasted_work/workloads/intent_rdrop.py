# expect: healthy
# held out
# options: --inspect
"""Intent classification with R-Drop: two dropout passes over the same batch, symmetric KL between them."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class TextCNN(nn.Module):
    def __init__(self, vocab, classes, dim=64, width=64, p=0.3):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.convs = nn.ModuleList(nn.Conv1d(dim, width, k, padding=k // 2) for k in (3, 5))
        self.drop = nn.Dropout(p)
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, ids):
        x = self.drop(self.emb(ids)).transpose(1, 2)
        h = torch.cat([F.relu(conv(x)).amax(2) for conv in self.convs], 1)
        return self.fc(self.drop(h))


def rdrop_loss(logits_a, logits_b, labels, alpha):
    ce = 0.5 * (F.cross_entropy(logits_a, labels) + F.cross_entropy(logits_b, labels))
    log_a, log_b = F.log_softmax(logits_a, -1), F.log_softmax(logits_b, -1)
    kl = F.kl_div(log_a, log_b, reduction="batchmean", log_target=True)
    kl = kl + F.kl_div(log_b, log_a, reduction="batchmean", log_target=True)
    return ce + alpha * 0.5 * kl, ce


def build_data(n, length, vocab, classes):
    y = torch.randint(classes, (n,))
    ids = torch.randint(vocab, (n, length))
    marker = torch.randint(0, length, (n, 3))
    ids.scatter_(1, marker, (y * 4)[:, None] + torch.randint(4, (n, 3)))
    return TensorDataset(ids, y)


def run(args):
    torch.manual_seed(args.seed)
    data = build_data(args.samples, args.length, args.vocab, args.classes)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True)
    model = TextCNN(args.vocab, args.classes)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs * len(loader))
    step, seen, correct = 0, 0, 0
    for epoch in range(args.epochs):
        for ids, labels in loader:
            out_a = model(ids)
            out_b = model(ids)
            loss, ce = rdrop_loss(out_a, out_b, labels, args.alpha)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            correct += (out_a.detach().argmax(1) == labels).sum().item()
            seen += len(labels)
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} ce {ce.item():.4f} acc {correct / seen:.3f}")
                seen, correct = 0, 0


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=640)
    ap.add_argument("--length", type=int, default=32)
    ap.add_argument("--vocab", type=int, default=500)
    ap.add_argument("--classes", type=int, default=6)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--alpha", type=float, default=1.0)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=9)
    run(ap.parse_args())
