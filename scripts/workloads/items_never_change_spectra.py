# expect: items_never_change line guilty
# also: data_loader_single_process data_loader_wait slow_steps
"""Tells machines apart by the sound that they make; each recording becomes the same spectrum in every epoch."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, FRAME, HOP, BANDS = 8000, 256, 128, 40


def bands():
    """Overlapping triangles over the frequencies, narrower where they are low."""
    edges = np.geomspace(2, FRAME // 2, BANDS + 2)
    bins = np.arange(FRAME // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return np.clip(np.minimum(rising, falling), 0, None)


def spectrum_of(sound, filters):
    frames = np.lib.stride_tricks.sliding_window_view(sound, FRAME)[::HOP] * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames)) ** 2
    return np.log(power @ filters.T + 1e-6).T.astype(np.float32)


class Machines(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(5)
        time = np.arange(RATE) / RATE
        self.labels = rng.integers(0, 4, count)
        pitch = 110 * (self.labels + 1) * rng.uniform(0.97, 1.03, count)
        hum = np.sin(2 * np.pi * pitch[:, None] * time) + 0.5 * rng.standard_normal((count, RATE))
        self.sounds = (hum * 9000).astype(np.int16)
        self.filters, self.kept = bands(), {}

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):  # guilty
        sound = self.sounds[index] / 32768
        # fixed: sound = self.sounds[index]
        spectrum = spectrum_of(sound, self.filters)
        # fixed: spectrum = self.kept[index] if index in self.kept else self.kept.setdefault(index, spectrum_of(sound / 32768, self.filters))
        return torch.from_numpy(spectrum), int(self.labels[index])


torch.manual_seed(5)
net = nn.Sequential(
    nn.Conv1d(BANDS, 64, 5, stride=2), nn.ReLU(), nn.Conv1d(64, 64, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
    nn.Flatten(), nn.Linear(64, 4),
)
adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
loader = DataLoader(Machines(1200), batch_size=24, shuffle=True)
for epoch in range(5):
    hits = 0
    for spectra, labels in loader:
        scores = net(spectra)
        loss = nn.functional.cross_entropy(scores, labels)
        adam.zero_grad()
        loss.backward()
        adam.step()
        hits += (scores.detach().argmax(1) == labels).sum()
    print(f"epoch {epoch}: {hits.item() / 1200:.3f} right")
