# expect: loop_in_model line guilty
# also: slow_optimizer
"""Metric learning: the loss looks for the hardest negative of each sample of the batch, one sample after the other."""
import torch
from torch import nn


class Hardest(nn.Module):
    def forward(self, vectors, labels):
        losses = []
        for anchor in range(len(labels)):
            same = labels == labels[anchor]  # guilty
            distance = (vectors - vectors[anchor]).pow(2).sum(1)  # guilty
            far = distance.masked_fill(~same, 0.0).amax()  # guilty
            near = distance.masked_fill(same, 1e3).amin()  # guilty
            losses.append(torch.relu(far - near + 0.5))  # guilty
        return torch.stack(losses).mean()


def main(steps=250):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    criterion = Hardest()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    centres = torch.randn(16, 64)
    for step in range(steps):
        labels = torch.randint(0, 16, (96,))
        optimizer.zero_grad()
        loss = criterion(net(centres[labels] + 0.3 * torch.randn(96, 64)), labels)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
