# expect: repeated_backward line guilty
"""Several attribute heads on one shared convolutional trunk."""
import csv
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

TASKS = {"age": 8, "glasses": 2, "expression": 5, "pose": 4}


class Faces:
    def __init__(self, n, size=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.labels = {k: torch.randint(c, (n,), generator=g) for k, c in TASKS.items()}
        x = 0.5 * torch.randn(n, 1, size, size, generator=g)
        g = torch.Generator().manual_seed(77)
        for k, c in TASKS.items():
            proto = torch.randn(c, 1, size, size, generator=g)
            x += 0.4 * F.avg_pool2d(proto, 3, 1, 1)[self.labels[k]]
        self.x = x

    def __len__(self):
        return len(self.x)

    def batches(self, size, shuffle):
        order = torch.randperm(len(self)) if shuffle else torch.arange(len(self))
        for idx in order.split(size):
            yield self.x[idx], {k: v[idx] for k, v in self.labels.items()}


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 32, 3, padding=1)
        self.c2 = nn.Conv2d(32, 64, 3, padding=1)
        self.c3 = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return F.relu(self.c3(x)).mean((2, 3))


class MultiTaskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = Trunk()
        self.heads = nn.ModuleDict(
            {k: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, c)) for k, c in TASKS.items()}
        )

    def forward(self, x):
        z = self.trunk(x)
        return {k: head(z) for k, head in self.heads.items()}


class Experiment:
    def __init__(self, workdir, epochs=12, batch_size=32):
        self.epochs, self.batch_size = epochs, batch_size
        self.train_set, self.val_set = Faces(1280, seed=1), Faces(256, seed=2)
        self.net = MultiTaskNet()
        self.optim = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.weights = {"age": 1.0, "glasses": 0.5, "expression": 1.0, "pose": 0.8}
        self.log = open(os.path.join(workdir, "log.csv"), "w", newline="")
        self.writer = csv.writer(self.log)
        self.writer.writerow(["epoch"] + list(TASKS))

    def step(self, x, labels):
        self.optim.zero_grad()
        outputs = self.net(x)
        report = {}
        # fixed: report, total = {}, 0.0
        for name, out in outputs.items():
            loss = self.weights[name] * F.cross_entropy(out, labels[name])
            loss.backward(retain_graph=True)  # guilty
            # fixed: total = total + loss
            report[name] = loss.item()
        self.optim.step()
        # fixed: total.backward(), self.optim.step()
        return report

    def validate(self):
        self.net.eval()
        hits = dict.fromkeys(TASKS, 0)
        with torch.no_grad():
            for x, labels in self.val_set.batches(128, False):
                for k, out in self.net(x).items():
                    hits[k] += (out.argmax(1) == labels[k]).sum().item()
        self.net.train()
        return {k: v / len(self.val_set) for k, v in hits.items()}

    def run(self):
        for epoch in range(self.epochs):
            sums = dict.fromkeys(TASKS, 0.0)
            for x, labels in self.train_set.batches(self.batch_size, True):
                for k, v in self.step(x, labels).items():
                    sums[k] += v
            self.writer.writerow([epoch] + ["%.4f" % v for v in sums.values()])
            acc = self.validate()
            print(epoch, " ".join(f"{k}={v:.3f}" for k, v in acc.items()), flush=True)
        self.log.close()


if __name__ == "__main__":
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as workdir:
        Experiment(workdir).run()
