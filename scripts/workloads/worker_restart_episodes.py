# expect: worker_restart line guilty
# held out
"""Prototypical network, 5-way 5-shot episodes. One 'epoch' is a handful of episodes, then the
running accuracy is printed and the learning rate is looked at."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

WAYS, SHOTS, QUERIES = 5, 5, 10


class Episodes(Dataset):
    """Each item is a full episode, drawn anew."""

    def __init__(self, per_epoch):
        digits = load_digits()
        self.images = digits.images.astype(np.float32) / 16.0
        self.labels = digits.target
        self.per_epoch = per_epoch
        self.pools = None

    def _pools(self):
        # rotated copies count as classes of their own, as in Omniglot
        pools = []
        for c in range(10):
            mine = self.images[self.labels == c]
            for k in range(4):
                turned = np.rot90(mine, k, axes=(1, 2))
                pools.append(np.ascontiguousarray(turned.repeat(2, 1).repeat(2, 2)))
        return pools

    def __len__(self):
        return self.per_epoch

    def __getitem__(self, _):
        if self.pools is None:
            self.pools = self._pools()
        rng = np.random.default_rng(int(torch.randint(2 ** 31, ())))
        chosen = rng.choice(len(self.pools), WAYS, replace=False)
        sup, qry = [], []
        for c in chosen:
            pick = rng.choice(len(self.pools[c]), SHOTS + QUERIES, replace=False)
            sup.append(self.pools[c][pick[:SHOTS]])
            qry.append(self.pools[c][pick[SHOTS:]])
        return torch.from_numpy(np.stack(sup)), torch.from_numpy(np.stack(qry))


def encoder(width=32):
    layers, prev = [], 1
    for _ in range(3):
        layers += [nn.Conv2d(prev, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        prev = width
    return nn.Sequential(*layers, nn.Flatten())


def episode_loss(net, support, query):
    proto = net(support.reshape(-1, 1, 16, 16)).view(WAYS, SHOTS, -1).mean(1)
    q = net(query.reshape(-1, 1, 16, 16))
    logits = -torch.cdist(q, proto) ** 2
    y = torch.arange(WAYS).repeat_interleave(QUERIES)
    return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()


def main(epochs=50, per_epoch=10):
    torch.manual_seed(0)
    loader = DataLoader(Episodes(per_epoch), batch_size=None, num_workers=2)  # guilty
    # fixed: loader = DataLoader(Episodes(per_epoch), batch_size=None, num_workers=2, persistent_workers=True)
    net = encoder()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=10)
    for epoch in range(epochs):
        losses, accs = [], []
        for support, query in loader:  # guilty
            loss, acc = episode_loss(net, support, query)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            accs.append(acc.item())
        plateau.step(np.mean(losses))
        if epoch % 5 == 0:
            print(f"{epoch:3d} loss {np.mean(losses):.3f} acc {np.mean(accs):.3f}")


if __name__ == "__main__":
    main()
