# expect: checkpoint_stall line guilty
# also: slow_steps
"""A trainer class with arguments, callbacks and a habit: it saves everything every few steps."""
import os
import tempfile
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 420
    save_steps: int = 5
    # fixed: save_steps: int = 120
    logging_steps: int = 120
    learning_rate: float = 1e-3
    train_batch_size: int = 64


class Trainer:
    def __init__(self, model, args, inputs, labels):
        self.model, self.args = model, args
        self.inputs, self.labels = inputs, labels
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, args.max_steps)
        self.global_step = 0

    def get_batch(self):
        start = self.global_step * self.args.train_batch_size % (len(self.inputs) - self.args.train_batch_size)
        rows = slice(start, start + self.args.train_batch_size)
        return self.inputs[rows], self.labels[rows]

    def training_step(self, inputs, labels):
        self.model.train()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        return loss.detach()

    def save_checkpoint(self):
        path = os.path.join(self.args.output_dir, "checkpoint.pt")
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "step": self.global_step,
        }
        torch.save(state, path + ".part")  # guilty
        os.replace(path + ".part", path)

    def log(self, loss):
        print({"loss": round(loss.item(), 4), "learning_rate": self.scheduler.get_last_lr()[0], "step": self.global_step})

    def train(self):
        while self.global_step < self.args.max_steps:
            loss = self.training_step(*self.get_batch())
            self.optimizer.step()
            self.scheduler.step()
            self.optimizer.zero_grad()
            self.global_step += 1
            if self.global_step % self.args.logging_steps == 0:
                self.log(loss)
            if self.global_step % self.args.save_steps == 0:
                self.save_checkpoint()


def main():
    torch.manual_seed(1234)
    model = nn.Sequential(
        nn.Embedding(2000, 128), nn.Flatten(), nn.Linear(16 * 128, 320), nn.ReLU(), nn.Linear(320, 320), nn.ReLU(), nn.Linear(320, 8)
    )
    inputs = torch.randint(0, 2000, (4096, 16))
    labels = inputs[:, 0] % 8
    with tempfile.TemporaryDirectory() as folder:
        Trainer(model, TrainingArguments(output_dir=folder), inputs, labels).train()


if __name__ == "__main__":
    main()
