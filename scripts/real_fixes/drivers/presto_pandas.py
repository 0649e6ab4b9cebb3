"""Pretrain WorldCereal's Presto on a data frame of random pixels: 14 bands of 12 months each."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from src.dataset import WorldCerealMaskedDataset
from src.masking import MASK_STRATEGIES, MaskParamsNoDw
from src.presto import BANDS_GROUPS_IDX, LossWrapper, Presto, param_groups_weight_decay
from torch.utils.data import DataLoader

PIXELS, BATCH, MONTHS, EPOCHS = 192, 32, 12, 6
COLUMNS = {
    "OPTICAL-{}-ts{}-10m": ("B02", "B03", "B04", "B08"),
    "OPTICAL-{}-ts{}-20m": ("B05", "B06", "B07", "B8A", "B11", "B12"),
    "SAR-{}-ts{}-20m": ("VH", "VV"),
    "METEO-{}-ts{}-100m": ("precipitation_flux", "temperature_mean"),
}


def make_pixels() -> pd.DataFrame:
    """Return a row per pixel."""
    random = np.random.default_rng(0)
    names = [form.format(band, t) for form, bands in COLUMNS.items() for band in bands for t in range(MONTHS)]
    frame = pd.DataFrame(random.integers(1, 10_000, (PIXELS, len(names))), columns=names)
    frame["DEM-alt-20m"], frame["DEM-slo-20m"] = random.random(PIXELS), random.random(PIXELS)
    frame["lat"], frame["lon"] = random.random(PIXELS), random.random(PIXELS)
    frame["start_date"], frame["LANDCOVER_LABEL"] = "2020-01-01", 11
    return frame


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    dataset = WorldCerealMaskedDataset(make_pixels(), MaskParamsNoDw(MASK_STRATEGIES, 0.75))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = Presto.construct(**json.loads(Path("config/default.json").read_text()))
    optimizer = torch.optim.AdamW(param_groups_weight_decay(model, 0.05), lr=1e-3, betas=(0.9, 0.95))
    criterion = LossWrapper(torch.nn.MSELoss())
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for mask, _, x, y, world, _, month, latlons, _ in loader:
            optimizer.zero_grad()
            predicted, _ = model(
                x.float(), mask=mask.float(), dynamic_world=world.long(), latlons=latlons.float(), month=month
            )
            mask[:, 1:, BANDS_GROUPS_IDX["SRTM"]] = False
            loss = criterion(predicted[mask.bool()], y.float()[mask.bool()])
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()
