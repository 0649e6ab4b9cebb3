# expect: program_profiler line guilty
# also: gc_pause python_overhead slow_steps logging_overhead debug_mode_enabled slow_start
# twin: healthy
"""Learns to add digits of sequences; somebody wanted the operators of each step and never removed the table."""
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(0)


class Adder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, 10)

    def forward(self, digits):
        states, _ = self.mix(self.embed(digits))
        return self.out(states)


def train_step(model, optimizer, digits):
    target = digits.cumsum(1) % 10
    loss = nn.functional.cross_entropy(model(digits).flatten(0, 1), target.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def main():
    model = Adder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    digits = torch.randint(0, 10, (4096, 24))
    for step in range(150):
        batch = digits[torch.randint(0, len(digits), (64,))]
        with profile(activities=[ProfilerActivity.CPU]) as watched:
        # fixed: if True:
            loss = train_step(model, optimizer, batch)
        table = watched.key_averages().table(sort_by="cpu_time_total", row_limit=5)  # guilty
        # fixed: table = ""
        if step % 50 == 0:
            print(step, round(loss.item(), 4), table[:60].strip())


if __name__ == "__main__":
    main()
