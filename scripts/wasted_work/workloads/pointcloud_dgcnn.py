# expect: full_sort line guilty
# options: --inspect
"""Point-cloud classification with edge features (DGCNN-like, static graph per sample)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(points, k):
    """points (B, N, 3) -> indices (B, N, k) of the nearest points"""
    dist = torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")
    idx = dist.sort(dim=-1)[1][:, :, :k]  # guilty
    # fixed: idx = dist.topk(k, dim=-1, largest=False)[1]
    return idx


def gather_neighbours(x, idx):
    b, n, k = idx.shape
    flat = (idx + torch.arange(b).view(b, 1, 1) * n).view(-1)
    return x.reshape(b * n, -1)[flat].view(b, n, k, -1)


class EdgeConv(nn.Module):
    """max_j relu(W_c x_i + W_n (x_j - x_i)), with the linear maps applied per point"""

    def __init__(self, cin, cout):
        super().__init__()
        self.center = nn.Linear(cin, cout)
        self.neigh = nn.Linear(cin, cout, bias=False)

    def forward(self, x, idx):
        u = self.neigh(x)
        best = gather_neighbours(u, idx).amax(2)
        return F.relu(self.center(x) - u + best)


class PointClassifier(nn.Module):
    def __init__(self, n_classes, k=12):
        super().__init__()
        self.k = k
        self.e1 = EdgeConv(3, 24)
        self.e2 = EdgeConv(24, 32)
        self.lift = nn.Linear(56, 64)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, n_classes))

    def forward(self, pts):
        idx = knn(pts, self.k)  # guilty
        h1 = self.e1(pts, idx)
        h2 = self.e2(h1, idx)
        h = F.relu(self.lift(torch.cat([h1, h2], -1)))
        return self.head(h.amax(1))


def sample_shape(label, n):
    u = torch.randn(n, 3)
    if label == 0:
        p = u / u.norm(dim=1, keepdim=True)
    elif label == 1:
        p = torch.rand(n, 3) * 2 - 1
        axis = torch.randint(3, (n,))
        p[torch.arange(n), axis] = torch.sign(p[torch.arange(n), axis])
    elif label == 2:
        t = torch.rand(n) * 6.2832
        p = torch.stack([t.cos(), t.sin(), torch.rand(n) * 2 - 1], 1)
    else:
        a, b = torch.rand(2, n) * 6.2832
        p = torch.stack([(1 + 0.35 * b.cos()) * a.cos(), (1 + 0.35 * b.cos()) * a.sin(), 0.35 * b.sin()], 1)
    return p


def augment(pts):
    theta = torch.rand(len(pts)) * 6.2832
    c, s, z, o = theta.cos(), theta.sin(), torch.zeros(len(pts)), torch.ones(len(pts))
    rot = torch.stack([c, -s, z, s, c, z, z, z, o], 1).view(-1, 3, 3)
    return pts @ rot + 0.02 * torch.randn_like(pts)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--num_points", type=int, default=256)
    ap.add_argument("--batch_size", type=int, default=8)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    labels = torch.arange(160) % 4
    clouds = torch.stack([sample_shape(int(y), args.num_points) for y in labels])
    model = PointClassifier(4)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    running = 0.0
    for step in range(1, args.steps + 1):
        pick = torch.randint(len(clouds), (args.batch_size,))
        logits = model(augment(clouds[pick]))
        loss = F.cross_entropy(logits, labels[pick], label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
        if step % 20 == 0:
            print(f"step {step} loss {running / 20:.4f}")
            running = 0.0


if __name__ == "__main__":
    main()
