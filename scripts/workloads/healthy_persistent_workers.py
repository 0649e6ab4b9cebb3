# expect: healthy
"""The fixed twin of worker_restart.py: one worker, kept alive between the epochs."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(1024, 128), torch.randn(1024, 1))
        self.loader = DataLoader(data, batch_size=64, num_workers=1, persistent_workers=True)
        self.model = nn.Sequential(nn.Linear(128, 3072), nn.ReLU(), nn.Linear(3072, 1024), nn.ReLU(), nn.Linear(1024, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)

    def fit(self, epochs):
        for _ in range(epochs):
            for inputs, targets in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.mse_loss(self.model(inputs), targets)
                loss.backward()
                self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    print("loss", Trainer().fit(epochs=8))
