# expect: healthy
"""A recurrent cell of its own: the loop over time cannot be one operation, since each step reads the one before."""
import torch
from torch import nn


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        state = series.new_zeros(series.shape[0], series.shape[2])
        inputs = self.outer(series)
        for moment in range(series.shape[1]):
            gate, value = inputs[:, moment].chunk(2, -1)
            state = torch.sigmoid(gate) * state + torch.tanh(value + self.inner(state))
        return self.head(state)


def main(steps=150):
    torch.manual_seed(2)
    model = Gate(128)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        series = torch.randn(64, 24, 128)
        optimizer.zero_grad()
        loss = (model(series).squeeze(-1) - series[:, -1, 0]).pow(2).mean()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
