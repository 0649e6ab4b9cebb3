"""Train Stanza's tokenizer on random words, with the program of the project, and judge it on long paragraphs."""

from __future__ import annotations

import logging
import random
import sys
import time
from pathlib import Path

TRAINED, DEVELOPED, LETTERS, STEPS, EVERY = 60, 8, "abcdefghijklmnopqrstuvwxyz", 42, 6


class Timer(logging.Handler):
    """Prints how long it took from one dev score to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.started = 0, time.perf_counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Print, if the record is about a dev score."""
        if "Dev score" not in record.getMessage():
            return
        now = time.perf_counter()
        print(
            f"epoch {self.epoch} {record.getMessage().strip()} seconds {now - self.started:.3f}", flush=True
        )
        self.epoch, self.started = self.epoch + 1, now


def paragraph(chooser: random.Random, sentences: int) -> tuple[str, str]:
    """Return a text, and for each letter whether a word (1) or a sentence (2) ends there."""
    text, labels = "", ""
    for _ in range(sentences):
        for _ in range(chooser.randint(8, 25)):
            word = "".join(chooser.choices(LETTERS, k=chooser.randint(1, 9)))
            text, labels = text + word + " ", labels + "0" * (len(word) - 1) + "10"
        text, labels = text[:-1] + ". ", labels[:-1] + "20"
    return text[:-1], labels[:-1]


def write_data(name: str, paragraphs: int, sentences: int) -> list[str]:
    """Write a text and its labels, and return the two paths."""
    chooser = random.Random(name)
    pairs = [paragraph(chooser, sentences) for _ in range(paragraphs)]
    for kind, texts in (("txt", [text for text, _ in pairs]), ("toklabels", [labels for _, labels in pairs])):
        Path(f"{name}.{kind}").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return [f"{name}.txt", f"{name}.toklabels"]


def main() -> None:
    """Run the program."""
    train, labels = write_data("train", TRAINED, 8)
    dev, dev_labels = write_data("dev", DEVELOPED, 30)
    arguments = [
        "--txt_file",
        train,
        "--label_file",
        labels,
        "--dev_txt_file",
        dev,
        "--dev_label_file",
        dev_labels,
    ]
    arguments += ["--dev_conll_gold", "dev.gold", "--conll_file", "dev.conllu", "--lang", "en"]
    arguments += ["--shorthand", "en_random", "--max_seqlen", "300", "--batch_size", "8"]
    sys.argv[1:] = [*arguments, "--steps", str(STEPS), "--eval_steps", str(EVERY), "--no_use_mwt", "--cpu"]

    from stanza.models import tokenizer
    from stanza.models.tokenization import utils

    logging.getLogger("stanza").addHandler(Timer())
    tokenizer.eval_model = lambda args, trainer, batches, vocab, mwt: count_errors(
        utils, args, trainer, batches, vocab
    )
    tokenizer.main()


def count_errors(utils: object, args: dict, trainer: object, batches: object, vocab: object) -> float:  # type: ignore[type-arg]
    """Predict the dev set as the project does, without the score of the shared task, which needs a treebank."""
    unknown, letters, _, _ = utils.output_predictions(  # type: ignore[attr-defined]
        args["conll_file"], trainer, batches, vocab, None, args["max_seqlen"]
    )
    return 1 - unknown / letters


if __name__ == "__main__":
    main()
