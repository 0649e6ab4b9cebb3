"""Make small data in place of a download, for the programs of real_programs.py that fidelity/make_data.py lacks.

    python scripts/real_programs/make_data.py split DIR TRAIN VALIDATION SIZE   JPEG files in DIR/train and DIR/val
    python scripts/real_programs/make_data.py graphs DIR [GRAPHS]               MUTAG in TUDataset's raw files
    python scripts/real_programs/make_data.py planetoid DIR                     Cora in Planetoid's raw files
    python scripts/real_programs/make_data.py classifier DIR                    a tiny BERT with its tokenizer
    python scripts/real_programs/make_data.py vit DIR                           a tiny ViT with its image processor
    python scripts/real_programs/make_data.py labelled FILE [ROWS]              a CSV file of sentences with labels
    python scripts/real_programs/make_data.py series FILE [ROWS]                a CSV file of seven time series
    python scripts/real_programs/make_data.py names FILE [ROWS]                 made-up names, a line each
    python scripts/real_programs/make_data.py unet DIR                          the configuration of a small U-Net
    python scripts/real_programs/make_data.py boxes DIR COUNT SIZE              pictures with boxes, in YOLO's folders
    python scripts/real_programs/make_data.py tokens DIR FILES COUNT WORDS      files of COUNT numbers below WORDS
    python scripts/real_programs/make_data.py masks DIR COUNT SIZE              pictures in DIR/imgs, DIR/masks
    python scripts/real_programs/make_data.py words DIR [COUNT]                 pictures of words, in an LMDB
    python scripts/real_programs/make_data.py points DIR TRAIN TEST ROWS        ModelNet40's files of points
    python scripts/real_programs/make_data.py letters DIR [CLASSES]             20 pictures a class, for Omniglot
    python scripts/real_programs/make_data.py events DIR [COUNT]                events of users and pages, for TGN
    python scripts/real_programs/make_data.py ratings FILE [ROWS]               MovieLens' ratings.dat
    python scripts/real_programs/make_data.py headlines DIR TRAIN OTHER         THUCNews: characters with a class
    python scripts/real_programs/make_data.py streets DIR TRAIN OTHER           CamVid: pictures with a class per pixel

All data are seeded random numbers, so they are the same each time.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fidelity"))

import make_data as common  # noqa: E402

SEED = 7


def split(folder: Path, training: int, validation: int, size: int) -> None:
    """Write pictures of two classes for training and validation."""
    common.pictures(folder / "train", training, size)
    common.pictures(folder / "val", validation, size)


def graphs(folder: Path, count: int = 188) -> None:
    """Write small graphs of two classes, with labels of nodes and edges."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    raw = folder / "MUTAG" / "raw"
    raw.mkdir(parents=True)
    edges, indicator, nodes, first = [], [], [], 1
    for graph in range(1, count + 1):
        size = int(numbers.integers(12, 28))
        pairs = [(first + node, first + node + 1) for node in range(size - 1)]
        edges += pairs + [(two, one) for one, two in pairs]
        indicator += [graph] * size
        nodes += list(numbers.integers(0, 7, size))
        first += size
    texts = {
        "A": [f"{one}, {two}" for one, two in edges],
        "graph_indicator": indicator,
        "graph_labels": [1 - 2 * (graph % 2) for graph in range(count)],
        "node_labels": nodes,
        "edge_labels": list(numbers.integers(0, 4, len(edges))),
    }
    for name, values in texts.items():
        (raw / f"MUTAG_{name}.txt").write_text("".join(f"{value}\n" for value in values), encoding="utf-8")


def planetoid(folder: Path, papers: int = 2708, words: int = 1433, classes: int = 7) -> None:
    """Write papers with words, classes and citations."""
    import numpy as np
    import scipy.sparse

    numbers = np.random.default_rng(SEED)
    raw = folder / "Cora" / "raw"
    raw.mkdir(parents=True)
    tests, labelled = 1000, 140
    features = scipy.sparse.random(papers, words, 0.013, format="csr", random_state=SEED, dtype="float32")
    features.data[:] = 1
    labels = np.eye(classes, dtype="int32")[numbers.integers(0, classes, papers)]
    known = papers - tests
    graph = {paper: numbers.integers(0, papers, 4).tolist() for paper in range(papers)}
    parts = {
        "x": features[:labelled],
        "tx": features[known:],
        "allx": features[:known],
        "y": labels[:labelled],
        "ty": labels[known:],
        "ally": labels[:known],
        "graph": graph,
    }
    for name, value in parts.items():
        (raw / f"ind.cora.{name}").write_bytes(pickle.dumps(value))
    (raw / "ind.cora.test.index").write_text("".join(f"{paper}\n" for paper in range(known, papers)))


def classifier(folder: Path) -> None:
    """Write a model for sequence classification, which scripts load as a pretrained one."""
    import torch
    import transformers

    common.language_model("bert", folder)
    torch.manual_seed(SEED)
    config = transformers.BertConfig.from_pretrained(folder)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)


def vit(folder: Path) -> None:
    """Write a vision transformer of two layers for pictures of 64 x 64."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        image_size=64,
        patch_size=8,
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)


def labelled(path: Path, rows: int = 2000) -> None:
    """Write sentences of made-up words; those with an even number of one word have the label 0."""
    import random

    numbers = random.Random(SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["sentence,label"]
    for _ in range(rows):
        words = numbers.choices(common.WORDS, k=12)
        lines.append(f"{' '.join(words)},{words.count('the') % 2}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def series(path: Path, rows: int = 3000) -> None:
    """Write waves with noise, one row for each hour."""
    import numpy as np
    import pandas as pd

    numbers = np.random.default_rng(SEED)
    hours = np.arange(rows)
    waves = {
        name: np.sin(hours / (5 + place)) + numbers.normal(0, 0.1, rows)
        for place, name in enumerate(["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"])
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    dates = pd.date_range("2020-01-01", periods=rows, freq="h")
    pd.DataFrame({"date": dates, **waves}).to_csv(path, index=False)


def names(path: Path, rows: int = 20000) -> None:
    """Write names of lower-case letters, of which each letter occurs."""
    import random
    import string

    numbers = random.Random(SEED)
    lines = ["".join(numbers.choices(string.ascii_lowercase, k=numbers.randint(3, 9))) for _ in range(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def unet(folder: Path) -> None:
    """Write the configuration of a diffusion model for pictures of 32 x 32."""
    import diffusers

    diffusers.UNet2DModel(
        sample_size=32,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(32, 64),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ).save_config(folder)


def boxes(folder: Path, count: int, size: int) -> None:
    """Write noise with one to three bright rectangles of two classes, a fifth of it for validation."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(SEED)
    for place in range(count):
        part = "val" if place % 5 == 0 else "train"
        picture = numbers.integers(0, 128, (size, size, 3), dtype="uint8")
        lines = []
        for _ in range(int(numbers.integers(1, 4))):
            kind, x, y = (int(numbers.integers(limit)) for limit in (2, size // 2, size // 2))
            width, height = (int(number) for number in numbers.integers(size // 8, size // 2, 2))
            picture[y : y + height, x : x + width, kind] = 255
            middle = ((x + width / 2) / size, (y + height / 2) / size)
            lines.append(f"{kind} {middle[0]:.4f} {middle[1]:.4f} {width / size:.4f} {height / size:.4f}")
        for name in ("images", "labels"):
            (folder / name / part).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / "images" / part / f"{place:04}.jpg")
        (folder / "labels" / part / f"{place:04}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = f"path: {folder}\ntrain: images/train\nval: images/val\nnames: [red, green]\n"
    (folder / "data.yaml").write_text(text, encoding="utf-8")


def tokens(folder: Path, files: int, count: int, words: int) -> None:
    """Write files of 16-bit numbers, each of which follows from the last one and some noise."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    folder.mkdir(parents=True)
    for place in range(files):
        steps = np.cumsum(numbers.integers(0, 3, count)) % words
        (folder / f"data{place:02}.bin").write_bytes(steps.astype("uint16").tobytes())


def masks(folder: Path, count: int, size: int) -> None:
    """Write noise with a bright rectangle, and a picture of which pixels it covers."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(SEED)
    for name in ("imgs", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for place in range(count):
        picture = numbers.integers(0, 128, (size, size, 3), dtype="uint8")
        covered = np.zeros((size, size), "uint8")
        top, left = (int(number) for number in numbers.integers(0, size // 2, 2))
        covered[top : top + size // 3, left : left + size // 3] = 1
        picture[covered == 1] = 255
        Image.fromarray(picture).save(folder / "imgs" / f"{place:04}.jpg")
        Image.fromarray(covered).save(folder / "masks" / f"{place:04}_mask.png")


def words(folder: Path, count: int = 400) -> None:
    """Write pictures of made-up words with their texts."""
    import io
    import random
    import string

    import lmdb
    from PIL import Image, ImageDraw

    numbers = random.Random(SEED)
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), map_size=1 << 28) as base, base.begin(write=True) as transaction:
        for place in range(1, count + 1):
            text = "".join(numbers.choices(string.ascii_lowercase, k=numbers.randint(3, 10)))
            picture = Image.new("L", (100, 32), 255)
            ImageDraw.Draw(picture).text((5, 8), text, fill=0)
            file = io.BytesIO()
            picture.save(file, "PNG")
            transaction.put(f"image-{place:09}".encode(), file.getvalue())
            transaction.put(f"label-{place:09}".encode(), text.encode())
        transaction.put(b"num-samples", str(count).encode())


def points(folder: Path, training: int, test: int, rows: int) -> None:
    """Write clouds of points with normals, a text file each, in two of forty classes."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    classes = [f"shape{place:02}" for place in range(40)]
    folder.mkdir(parents=True)
    (folder / "modelnet40_shape_names.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    for part, count in (("train", training), ("test", test)):
        names = [f"{classes[place % 2]}_{part}{place:04}" for place in range(count)]
        (folder / f"modelnet40_{part}.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        for place, name in enumerate(names):
            (folder / classes[place % 2]).mkdir(exist_ok=True)
            cloud = numbers.normal(size=(rows, 6)) * (1, 1, 1 + place % 2, 1, 1, 1)
            np.savetxt(folder / classes[place % 2] / f"{name}.txt", cloud, "%.6f", ",")


def letters(folder: Path, classes: int = 1230) -> None:
    """Write twenty pictures of each of many classes."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    folder.mkdir(parents=True)
    one = numbers.random((classes, 1, 1, 28, 28))
    np.save(folder / "omniglot.npy", (one + numbers.random((classes, 20, 1, 28, 28)) > 1).astype("float64"))


def events(folder: Path, count: int = 8000, users: int = 800, pages: int = 100) -> None:
    """Write which user visited which page at what time, with 172 features each."""
    import numpy as np
    import pandas

    numbers = np.random.default_rng(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    table = pandas.DataFrame(
        {
            "u": numbers.integers(1, users + 1, count),
            "i": numbers.integers(users + 1, users + pages + 1, count),
            "ts": np.sort(numbers.integers(0, 1_000_000, count)).astype("float64"),
            "label": 0,
            "idx": np.arange(1, count + 1),
        }
    )
    table.to_csv(folder / "ml_wikipedia.csv")
    np.save(folder / "ml_wikipedia.npy", numbers.normal(size=(count + 1, 172)))
    np.save(folder / "ml_wikipedia_node.npy", np.zeros((users + pages + 1, 172)))


def ratings(path: Path, rows: int = 30000) -> None:
    """Write ratings of 3,952 films by 6,040 users."""
    import numpy as np

    numbers = np.random.default_rng(SEED)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = numbers.integers((1, 1, 1, 956703932), (6041, 3953, 6, 1046454590), (rows, 4))
    table[0, :2] = 6040, 3952
    path.write_text("".join("::".join(map(str, row)) + "\n" for row in table.tolist()), encoding="utf-8")


def headlines(folder: Path, training: int, others: int) -> None:
    """Write lines of Chinese characters with one of ten classes."""
    import random

    numbers = random.Random(SEED)
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / "saved_dict").mkdir(exist_ok=True)
    (folder / "class.txt").write_text("".join(f"class{place}\n" for place in range(10)), encoding="utf-8")
    for part, count in (("train", training), ("dev", others), ("test", others)):
        lines = []
        for _ in range(count):
            label = numbers.randrange(10)
            codes = (
                min(int(numbers.paretovariate(0.4)), 4000) + 40 * label
                for _ in range(numbers.randint(12, 30))
            )
            lines.append("".join(chr(0x4E00 + code) for code in codes) + f"\t{label}\n")
        (folder / f"{part}.txt").write_text("".join(lines), encoding="utf-8")


def streets(folder: Path, training: int, others: int) -> None:
    """Write noise with rectangles, and a picture of the class of each pixel."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(SEED)
    for part, count in (("train", training), ("val", others), ("test", others)):
        for name in (part, f"{part}annot"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for place in range(count):
            kinds = np.repeat(np.repeat(numbers.integers(0, 12, (6, 8), dtype="uint8"), 60, 0), 60, 1)
            picture = numbers.integers(0, 100, (360, 480, 3), dtype="uint8") + (kinds * 12)[..., None]
            Image.fromarray(picture).save(folder / part / f"{place:04}.png")
            Image.fromarray(kinds).save(folder / f"{part}annot" / f"{place:04}.png")


def main() -> None:
    """Make the requested data."""
    kind, place, *sizes = sys.argv[1:]
    makers = {
        "split": split,
        "graphs": graphs,
        "planetoid": planetoid,
        "classifier": classifier,
        "vit": vit,
        "labelled": labelled,
        "series": series,
        "names": names,
        "unet": unet,
        "boxes": boxes,
        "tokens": tokens,
        "masks": masks,
        "words": words,
        "points": points,
        "letters": letters,
        "events": events,
        "ratings": ratings,
        "headlines": headlines,
        "streets": streets,
    }
    makers[kind](Path(place), *map(int, sizes))


if __name__ == "__main__":
    main()
