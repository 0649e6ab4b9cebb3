"""Train k-diffusion's transformer with shifted windows to remove the noise of random images, with its loss."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

IMAGES, SIZE, WINDOW, BATCH, WIDTH, HEAD, EPOCHS = 32, 64, 16, 2, 32, 32, 7


class Anything(types.ModuleType):
    """A package that this training does not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for package in ("dctorch", "safetensors", "torchsde", "torchdiffeq"):
    sys.modules[package] = Anything(package)
sys.modules["k_diffusion"] = types.ModuleType("k_diffusion")
vars(sys.modules["k_diffusion"])["__path__"] = [str(Path("k_diffusion").absolute())]

from k_diffusion import utils  # noqa: E402
from k_diffusion.layers import Denoiser  # noqa: E402
from k_diffusion.models import image_transformer_v2 as transformer  # noqa: E402


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    attention = transformer.ShiftedWindowAttentionSpec(HEAD, WINDOW)
    levels = [
        transformer.LevelSpec(2, WIDTH, 2 * WIDTH, attention),
        transformer.LevelSpec(2, 2 * WIDTH, 4 * WIDTH, attention),
    ]
    mapping = transformer.MappingSpec(2, 64, 128)
    inner = transformer.ImageTransformerDenoiserModelV2(levels, mapping, 3, 3, patch_size=(2, 2))
    model = Denoiser(inner, sigma_data=0.5, weighting="soft-min-snr")
    optimizer = torch.optim.AdamW(inner.param_groups(5e-4), betas=(0.9, 0.95), weight_decay=1e-3)
    loader = DataLoader(TensorDataset(torch.rand(IMAGES, 3, SIZE, SIZE) * 2 - 1), BATCH, shuffle=True)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for (images,) in loader:
            sigma = utils.rand_cosine_interpolated([len(images)], SIZE, 32, SIZE, sigma_data=0.5)
            loss = model.loss(images, torch.randn_like(images), sigma).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
