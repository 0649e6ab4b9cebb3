# expect: needless_workers line guilty
# also: thread_oversubscription
# held out
"""Predicts the load of a heat pump from twelve readings, with workers that it does not need."""
import torch
from torch.utils.data import DataLoader, TensorDataset

FEATURES = 12


def readings(count=8_000):
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(count, FEATURES, generator=generator)
    y = (x[:, :4].prod(1) + 0.3 * x[:, 5]).sqrt() + 0.05 * torch.randn(count, generator=generator)
    return TensorDataset(x, y.unsqueeze(1))


def build():
    layers = []
    for width_in, width_out in ((FEATURES, 64), (64, 64), (64, 32)):
        layers += [torch.nn.Linear(width_in, width_out), torch.nn.SiLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))


def train(epochs=1):
    torch.manual_seed(3)
    model, huber = build(), torch.nn.HuberLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    loader = DataLoader(readings(), batch_size=8, shuffle=True, num_workers=3)  # guilty
    # fixed: loader = DataLoader(readings(), batch_size=8, shuffle=True)
    for epoch in range(epochs):
        total = torch.zeros(())
        for x, y in loader:
            loss = huber(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch}: {total.item() / len(loader):.5f}")


if __name__ == "__main__":
    train()
