# expect: first_batch_latency line guilty
# also: slow_steps data_loader_wait data_loader_single_process
"""Without workers: the data set parses its whole index again whenever an iteration over it begins."""
import json

import torch
from torch.utils.data import DataLoader, IterableDataset

INDEX = "\n".join(json.dumps({"id": n, "label": n % 5, "box": [n % 7, n % 11, n % 13, 1]}) for n in range(60_000))


class Annotated(IterableDataset):
    def __iter__(self):  # guilty
        rows = [json.loads(line) for line in INDEX.splitlines()]  # guilty
        features = torch.tensor([row["box"] for row in rows], dtype=torch.float32)
        for start in range(0, 4800, 40):
            yield features[start : start + 40], torch.tensor([row["label"] for row in rows[start : start + 40]])


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 5))
        self.optimizer = torch.optim.Adam(self.net.parameters(), fused=True)

    def epoch(self, loader):
        for boxes, labels in loader:
            loss = torch.nn.functional.cross_entropy(self.net(boxes), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    trainer = Trainer()
    loader = DataLoader(Annotated(), batch_size=None)  # guilty
    for _ in range(8):
        loss = trainer.epoch(loader)
    print(loss)
