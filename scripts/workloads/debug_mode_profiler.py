# expect: debug_mode_enabled line guilty
# also: slow_optimizer
# held out
"""PyTorch's profiler is started before the loop and never stopped, and its records are not used."""
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(*(nn.Sequential(nn.Linear(96, 96), nn.ReLU()) for _ in range(8)), nn.Linear(96, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def fit(self, steps):
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True):  # guilty
            for _ in range(steps):
                x = torch.randn(32, 96)
                self.optimizer.zero_grad()
                loss = (self.model(x) - x.mean(1, keepdim=True)).square().mean()
                loss.backward()
                self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    print("loss", Trainer().fit(250))
