# expect: healthy
# held out
"""Forecasts with a GRU, in functional style; windows are views of one tensor, and validation is small and rare."""
import torch
from torch import nn


def make_data(length, width):
    time = torch.arange(length, dtype=torch.float32)[:, None]
    periods = torch.linspace(7, 90, width)[None, :]
    return torch.sin(time / periods) + 0.1 * torch.randn(length, width)


def windows_of(series, window):
    return series.unfold(0, window + 1, 1).transpose(1, 2)


def make_model(width, hidden):
    recurrent, readout = nn.GRU(width, hidden, num_layers=2, batch_first=True), nn.Linear(hidden, width)

    def predict(x):
        states, _ = recurrent(x)
        return readout(states[:, -1])

    return predict, [*recurrent.parameters(), *readout.parameters()]


def make_update(predict, parameters):
    optimizer = torch.optim.Adam(parameters, lr=2e-3, fused=True)

    def update(batch):
        loss = nn.functional.huber_loss(predict(batch[:, :-1]), batch[:, -1])
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return update


def main(steps=300, batch=48):
    torch.manual_seed(23)
    windows = windows_of(make_data(6000, 16), window=24)
    training, held_back = windows[:5500], windows[5600:5700]
    predict, parameters = make_model(16, 96)
    update = make_update(predict, parameters)
    mean = torch.zeros(())
    for step in range(1, steps + 1):
        loss = update(training[torch.randint(0, len(training), (batch,))])
        mean.lerp_(loss, 0.05)
        if step % 100 == 0:
            with torch.inference_mode():
                error = nn.functional.l1_loss(predict(held_back[:, :-1]), held_back[:, -1])
            print(f"step {step} loss {mean.item():.4f} error {error.item():.4f}")


if __name__ == "__main__":
    main()
