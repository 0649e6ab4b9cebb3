# expect: items_never_change line guilty
# held out
# options: --inspect
"""Keyword spotting on synthetic tones: log-mel front end + small 1-D conv net."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def mel_filterbank(n_mels, n_fft, sr):
    def to_mel(f):
        return 2595.0 * math.log10(1.0 + f / 700.0)
    mel = torch.linspace(to_mel(20.0), to_mel(sr / 2), n_mels + 2)
    hz = 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    bins = torch.linspace(0, sr / 2, n_fft // 2 + 1)
    up = (bins[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - bins[None]) / (hz[2:] - hz[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


class LogMel:
    def __init__(self, sr=8000, n_fft=256, hop=80, n_mels=40):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        self.fb = mel_filterbank(n_mels, n_fft, sr)

    def __call__(self, wav):
        wav = torch.cat([wav[:1], wav[1:] - 0.97 * wav[:-1]])
        spec = torch.stft(wav, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spec.real.square() + spec.imag.square()
        mel = torch.log(self.fb @ power + 1e-6)
        mel = (mel - mel.mean(1, keepdim=True)) / (mel.std(1, keepdim=True) + 1e-5)
        delta = F.pad(mel[:, 2:] - mel[:, :-2], (1, 1)) / 2
        return torch.cat([mel, delta])


class KeywordDataset(Dataset):
    def __init__(self, n_clips, n_words, front_end, sr=8000):
        self.labels = torch.randint(n_words, (n_clips,))
        t = torch.arange(sr) / sr
        f0 = 250.0 + 180.0 * self.labels[:, None] + 40 * torch.randn(n_clips, 1)
        sweep = torch.rand(n_clips, 1) * 200.0
        self.wavs = torch.sin(2 * math.pi * (f0 * t + sweep * t * t / 2)) + 0.8 * torch.randn(n_clips, sr)
        self.front_end = front_end
        self.features = {}

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        self.features[i] = self.front_end(self.wavs[i])  # guilty
        # fixed: self.features[i] = self.features[i] if i in self.features else self.front_end(self.wavs[i])
        return self.features[i], self.labels[i]


class KeywordNet(nn.Module):
    def __init__(self, n_in, n_words, width=40):
        super().__init__()
        self.c1 = nn.Conv1d(n_in, width, 5, stride=2, padding=2)
        self.c2 = nn.Conv1d(width, width, 5, stride=2, padding=2)
        self.head = nn.Linear(width, n_words)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        return self.head(x.mean(2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--clips", type=int, default=192)
    ap.add_argument("--words", type=int, default=8)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--epochs", type=int, default=12)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(1)
    data = KeywordDataset(args.clips, args.words, LogMel())
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=0)
    net = KeywordNet(80, args.words)
    optim = torch.optim.AdamW(net.parameters(), lr=args.lr)
    step = 0
    for epoch in range(args.epochs):
        for feats, labels in loader:
            loss = F.cross_entropy(net(feats), labels)
            optim.zero_grad()
            loss.backward()
            optim.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
