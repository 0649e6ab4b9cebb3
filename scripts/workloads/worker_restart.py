# expect: worker_restart line guilty
# also: data_loader_wait slow_steps
"""Many short epochs, and the loader's workers are restarted for each of them."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        data = TensorDataset(torch.randn(512, 128), torch.randn(512, 1))
        self.loader = DataLoader(data, batch_size=64, num_workers=2)  # guilty
        # fixed: self.loader = DataLoader(data, batch_size=64, num_workers=2, persistent_workers=True)
        self.model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def training_step(self, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs), targets)

    def fit(self, epochs):
        for _ in range(epochs):
            for batch in self.loader:
                self.optimizer.zero_grad()
                loss = self.training_step(batch)
                loss.backward()
                self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    print("loss", Trainer().fit(epochs=25))
