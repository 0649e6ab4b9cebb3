# expect: slow_optimizer line guilty
"""A deep and narrow residual network with batch norms: hundreds of tiny tensors, and Adam as it comes."""
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.body(x)


class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def training_step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()  # guilty
        return loss

    def fit(self, x, y, steps):
        for step in range(steps):
            rows = torch.randint(0, len(x), (16,))
            loss = self.training_step(x[rows], y[rows])
        return loss.item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 24), *(Residual(24) for _ in range(40)), nn.Linear(24, 1))
    x = torch.randn(2048, 24)
    trainer = Trainer(model, torch.optim.Adam(model.parameters(), lr=1e-3))  # guilty
    print("loss", trainer.fit(x, x.sum(1, keepdim=True), 250))


if __name__ == "__main__":
    main()
