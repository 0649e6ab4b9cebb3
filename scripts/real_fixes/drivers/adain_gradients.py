"""Train the decoder of pytorch-AdaIN's style transfer on random images, with a random encoder."""

from __future__ import annotations

import time

import net
import torch
from torch import nn

SIZE, BATCH, STEPS, EPOCHS = 32, 4, 4, 8

torch.Tensor.cuda = lambda tensor, *_: tensor
"""The project's loss moves its zeros to a GPU."""


def main() -> None:
    """Train, and print the loss and the time of each epoch of steps."""
    torch.manual_seed(0)
    network = net.Net(nn.Sequential(*list(net.vgg.children())[:31]), net.decoder)
    network.train()
    optimizer = torch.optim.Adam(network.decoder.parameters(), lr=1e-4)
    contents, styles = torch.rand(STEPS, BATCH, 3, SIZE, SIZE), torch.rand(STEPS, BATCH, 3, SIZE, SIZE)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for content, style in zip(contents, styles, strict=True):
            optimizer.zero_grad()
            content_loss, style_loss = network(content, style)
            loss = content_loss + 0.01 * style_loss
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
