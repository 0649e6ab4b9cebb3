# expect: healthy
# options: --inspect
# also: loop_in_model python_overhead
"""Roll a forecast of a pendulum forward: the cell is fed with the truth at first and with its own output later."""
import torch
import torch.nn as nn

OBSERVED, AHEAD, STATES = 24, 16, 4


class Roller(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.cell = nn.GRUCell(STATES, width)
        self.out = nn.Linear(width, STATES)

    def forward(self, past, ahead):
        hidden = past.new_zeros(len(past), self.cell.hidden_size)
        for step in past.unbind(1):
            hidden = self.cell(step, hidden)
        state, states = past[:, -1], []
        for _ in range(ahead):
            state = state + self.out(hidden)
            states.append(state)
            hidden = self.cell(state, hidden)
        return torch.stack(states, 1)


def double_pendulums(count, length, dt=0.05):
    """Two coupled pendulums each, integrated with small steps."""
    angle, speed = torch.randn(count, 2), 0.5 * torch.randn(count, 2)
    frames = []
    for _ in range(length):
        force = -angle.sin() + 0.4 * (angle.flip(1) - angle)
        speed = speed + dt * force
        angle = angle + dt * speed
        frames.append(torch.cat([angle, speed], 1))
    return torch.stack(frames, 1)


def main():
    torch.manual_seed(13)
    frames = double_pendulums(400, 120)
    model = Roller()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    span = OBSERVED + AHEAD
    for step in range(100):
        rows, start = torch.randint(400, (64,)), int(torch.randint(120 - span, ()))
        window = frames[rows, start:start + span]
        forecast = model(window[:, :OBSERVED], AHEAD)
        loss = (forecast - window[:, OBSERVED:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"{step}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
