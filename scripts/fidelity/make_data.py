"""Make small data in place of a download, so that a public script runs unedited. Used by the lists of fidelity.py.

    python scripts/fidelity/make_data.py mnist DIR [IMAGES]       digits in MNIST's own files, for torchvision
    python scripts/fidelity/make_data.py pictures DIR COUNT SIZE  JPEG files in two folders, one for each class
    python scripts/fidelity/make_data.py text FILE [WORDS]        sentences of made-up words
    python scripts/fidelity/make_data.py cora DIR                 a citation graph in Cora's files
    python scripts/fidelity/make_data.py vgg16 DIR                weights for torchvision's vgg16, in a TORCH_HOME
    python scripts/fidelity/make_data.py gpt2 DIR                 a tiny model's configuration and its tokenizer
    python scripts/fidelity/make_data.py bert DIR                 the same of another kind

All data are seeded random numbers, so they are the same each time.
"""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

SEED = 7
WORDS = [
    "the",
    "a",
    "of",
    "and",
    *(f"{one}{two}" for one in "bdgklmnprst" for two in ("ain", "ero", "ilu", "om")),
]
CORA_WORDS, CORA_CLASSES, CORA_PAPERS = 1433, 7, 2708


def mnist(folder: Path, images: int = 640) -> None:
    """Write blurred strokes as digits: learnable, in the raw files that torchvision keeps beside its archives."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    shapes = numbers.random((10, 28, 28)) ** 4 * 255
    for name, count in (("train", images), ("t10k", max(images // 4, 100))):
        labels = numbers.integers(0, 10, count)
        noisy = np.clip(shapes[labels] + numbers.integers(-20, 20, (count, 28, 28)), 0, 255)
        pictures = struct.pack(">4i", 0x803, count, 28, 28) + noisy.astype("uint8").tobytes()
        classes = struct.pack(">2i", 0x801, count) + labels.astype("uint8").tobytes()
        for kind in ("MNIST", "FashionMNIST"):
            raw = folder / kind / "raw"
            raw.mkdir(parents=True, exist_ok=True)
            (raw / f"{name}-images-idx3-ubyte").write_bytes(pictures)
            (raw / f"{name}-labels-idx1-ubyte").write_bytes(classes)


def pictures(folder: Path, count: int, size: int) -> None:
    """Write coloured noise."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(SEED)
    for place in range(count):
        path = folder / f"class{place % 2}" / f"{place:04}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = numbers.integers(0, 256, (8, 8, 3), dtype="uint8")
        Image.fromarray(coarse).resize((size, size)).save(path)


def text(path: Path, words: int = 20000) -> None:
    """Write sentences of eight words, a line each."""
    numbers = random.Random(SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (" ".join(numbers.choices(WORDS, k=8)) + ".\n" for _ in range(words // 8))
    path.write_text("O God, O God!\n" + "".join(lines), encoding="utf-8")  # minGPT goes on from there


def cora(folder: Path) -> None:
    """Write papers with some words each, their classes, and who cites whom."""
    numbers = random.Random(SEED)
    folder.mkdir(parents=True)
    with open(folder / "cora.content", "w", encoding="utf-8") as content:
        for paper in range(CORA_PAPERS):
            chosen = set(numbers.sample(range(CORA_WORDS), 18))
            bits = "\t".join("1" if word in chosen else "0" for word in range(CORA_WORDS))
            content.write(f"{paper}\t{bits}\tclass{paper % CORA_CLASSES}\n")
    pairs = {tuple(numbers.sample(range(CORA_PAPERS), 2)) for _ in range(2 * CORA_PAPERS)}
    (folder / "cora.cites").write_text(
        "".join(f"{one}\t{two}\n" for one, two in sorted(pairs)), encoding="utf-8"
    )


def vgg16(folder: Path) -> None:
    """Write random weights; those of the classifier, which no script uses, as one number that is spread."""
    import torch
    import torchvision

    torch.manual_seed(SEED)
    weights = torchvision.models.vgg16(weights=None).state_dict()
    small = {
        name: value if name.startswith("features") else torch.zeros(1).expand(value.shape)
        for name, value in weights.items()
    }
    (folder / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(small, folder / "hub" / "checkpoints" / "vgg16-397923af.pth")


def language_model(kind: str, folder: Path) -> None:
    """Write a tokenizer of the made-up words and the configuration of a model of two layers."""
    import tokenizers
    import transformers

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|endoftext|>"]
    vocabulary = {word: place for place, word in enumerate([*special, ".", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        mask_token="[MASK]",
        eos_token="<|endoftext|>",
        model_max_length=64,
        **named,
    ).save_pretrained(folder)
    if kind == "gpt2":
        transformers.GPT2Config(
            vocab_size=len(vocabulary), n_embd=32, n_layer=2, n_head=2, n_positions=64
        ).save_pretrained(folder)
    else:
        transformers.BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        ).save_pretrained(folder)


def main() -> None:
    """Make the requested data."""
    kind, place, *sizes = sys.argv[1:]
    if kind in ("gpt2", "bert"):
        language_model(kind, Path(place))
    else:
        makers = {"mnist": mnist, "pictures": pictures, "text": text, "cora": cora, "vgg16": vgg16}
        makers[kind](Path(place), *map(int, sizes))


if __name__ == "__main__":
    main()
