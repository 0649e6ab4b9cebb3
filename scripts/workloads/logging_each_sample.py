# expect: logging_overhead line guilty
# also: python_overhead slow_steps
# options: --sample 50
# held out
"""Finds noisy labels: the loss of each single sample is logged, in each step, for a notebook to look at."""
import logging
import tempfile

import torch
from torch import nn

logger = logging.getLogger("train.samples")


def set_up_logging(file):
    handler = logging.StreamHandler(file)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU()
        )
        self.classifier = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def main():
    torch.manual_seed(6)
    images = torch.rand(5120, 1, 20, 20)
    labels = torch.randint(0, 10, (5120,))
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True, fused=True)
    losses_of = nn.CrossEntropyLoss(reduction="none")
    step = 0
    for epoch in range(15):
        for rows in torch.randperm(len(images)).split(128):
            losses = losses_of(net(images[rows]), labels[rows])
            optimizer.zero_grad()
            losses.mean().backward()
            optimizer.step()
            step += 1
            for row, loss in zip(rows.tolist(), losses.tolist()):
                logger.info("epoch %d step %d sample %d loss %.5f", epoch, step, row, loss)  # guilty
                # fixed: if step % 100 == 0: logger.info("epoch %d step %d sample %d loss %.5f", epoch, step, row, loss)
        print("epoch", epoch, "loss", round(losses.mean().item(), 4))


if __name__ == "__main__":
    with tempfile.TemporaryFile("w") as log_file:
        set_up_logging(log_file)
        main()
