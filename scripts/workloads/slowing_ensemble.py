# expect: slowing_steps line guilty
# also: python_overhead slow_steps validation_share
# twin: healthy
"""Labels each moment of synthetic sensor windows; each epoch is scored as an ensemble of the epochs so far."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def windows(count, length=64, classes=6):
    """Signals whose frequency changes in the middle, and the class of each moment."""
    time = torch.linspace(0, 1, length)
    both = torch.randint(0, classes, (count, 2))
    label = both.repeat_interleave(length // 2, dim=1)
    signal = torch.sin(6.3 * (2 + 3 * label.float()) * time + 6.3 * torch.rand(count, 1))
    return (signal + 0.5 * torch.randn(count, length)).unsqueeze(1), label


class Labeller(nn.Sequential):
    def __init__(self, classes=6, width=40):
        super().__init__(
            nn.Conv1d(1, width, 9, padding=4), nn.ReLU(),
            nn.Conv1d(width, width, 9, padding=8, dilation=2), nn.ReLU(),
            nn.Conv1d(width, width, 9, padding=16, dilation=4), nn.ReLU(),
            nn.Conv1d(width, classes, 1),
        )


def accuracy(probabilities, labels):
    return (probabilities.argmax(1) == labels).float().mean().item()


class EpochEnsemble:
    """How accurate the mean prediction of the first epochs is, for each number of epochs."""

    def __init__(self, labels):
        self.labels = labels
        self.predictions = []
        self.total = 0.0

    def add(self, probabilities):
        self.total = self.total + probabilities
        self.predictions.append(probabilities)
        # fixed: self.predictions = [self.total]

    def curve(self):
        found = []
        for count in range(1, len(self.predictions) + 1):
            mean = torch.stack(self.predictions[:count]).mean(0)  # guilty
            found.append(accuracy(mean, self.labels))  # guilty
        return found


@torch.no_grad()
def predict(model, loader):
    model.eval()
    found = torch.cat([model(x).softmax(1) for x, _ in loader])
    model.train()
    return found


def main(epochs=40):
    torch.manual_seed(0)
    train, (x, y) = TensorDataset(*windows(1_024)), windows(320)
    train_loader = DataLoader(train, batch_size=64, shuffle=True)
    test_loader = DataLoader(TensorDataset(x, y), batch_size=160)
    model = Labeller()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    ensemble = EpochEnsemble(y)
    for epoch in range(epochs):
        for signal, label in train_loader:
            loss = F.cross_entropy(model(signal), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ensemble.add(predict(model, test_loader))
        print(f"epoch {epoch} accuracy {ensemble.curve()[-1]:.3f}")  # guilty


if __name__ == "__main__":
    main()
