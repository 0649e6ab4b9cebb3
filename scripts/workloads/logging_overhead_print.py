# expect: logging_overhead line guilty
# options: --sample 50
# also: python_overhead slow_optimizer
# held out
"""A Trainer with callbacks that print a table of all weights' statistics after each step."""
import logging
import sys

import torch
from torch import nn

logging.basicConfig(stream=sys.stderr, level=logging.DEBUG, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("train")


class LogCallback:
    def on_step_end(self, trainer, step, loss):
        log.info("step %d loss %.5f lr %g", step, loss, trainer.optimizer.param_groups[0]["lr"])  # guilty
        for number in range(60):
            log.debug("step %d unit %d of %d seen", step, number, 60)  # guilty


class Trainer:
    def __init__(self, callbacks):
        torch.manual_seed(0)
        self.callbacks = callbacks
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self, steps):
        for step in range(steps):
            x = torch.randn(64, 64)
            loss = (self.model(x) - x.mean(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            for callback in self.callbacks:
                callback.on_step_end(self, step, loss.item())  # guilty


Trainer([LogCallback()]).fit(300)
