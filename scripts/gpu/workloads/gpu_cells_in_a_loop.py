# expect: launch_bound
# also: small_batch busy_but_idle_units unfused_elementwise loop_in_model
"""Runs an LSTM cell over 100 time steps in Python: thousands of tiny kernels in each step."""

import torch
from torch import nn

torch.manual_seed(0)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(64, 128)
        self.head = nn.Linear(128, 1)

    def forward(self, x):
        state = None
        for time in range(x.shape[1]):
            state = self.cell(x[:, time], state)
        return self.head(state[0])


model = Recurrent().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = torch.randn(50, 64, 100, 64, device="cuda")
target = torch.randn(50, 64, 1, device="cuda")
for step in range(500):
    loss = nn.functional.mse_loss(model(data[step % 50]), target[step % 50])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
