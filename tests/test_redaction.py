"""The same file masks secrets in both halves."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap import redaction
from perfwrap.redaction import masked, masked_words

REPOSITORY = Path(__file__).resolve().parent.parent
HEX = "0123456789abcdef0123456789abcdef01234567"

SECRETS = (
    "--api-key=hunter2",
    "--password=hunter2 with blanks",
    "--db-pass=hunter2",
    "DB_PASS=hunter2",
    '{"pass": "hunter2"}',
    "WANDB_API_KEY=hunter2",
    "https://user:hunter2@example.org/data",
    "https://example.org/data?token=hunter2&size=1",
    "https://example.org/data?X-Amz-Signature=hunter2",
    "postgresql://me:hunter2@db:5432/runs",
    "login(key='hunter2')",
    '{"password": "hunter2"}',
    "Authorization: Bearer hunter2",
    "export HF_TOKEN=hunter2; python train.py",
)
TOKENS = (
    "hf_" + "aB3" * 12,
    "sk-proj-" + "aB3" * 12,
    "sk-ant-api03-" + "aB3" * 12,
    "ghp_" + "aB3" * 12,
    "github_pat_" + "aB3" * 12,
    "glpat-" + "aB3" * 7,
    "xoxb-" + "123-" * 6,
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSy" + "aB3" * 11,
    "nvapi-" + "aB3" * 12,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    HEX,
    "local-" + HEX,
)
HARMLESS = (
    "python train.py --max-tokens=12 --tokenizer bpe --lr 0.1 --sort-by=size",
    f"/cache/snapshots/{HEX}/model.bin",
    f"git+https://example.org/a@{HEX}",
    f"--revision={HEX}",
    "git@example.org:a/b",
    "s3://bucket/key/train.tar",
    "if password == given:",
    "at::native::Key::operator()",
    "__main__.py",
    "--nproc-per-node 8 --master-port 29500",
)


@pytest.mark.parametrize("text", SECRETS)
def test_what_stands_under_the_name_of_a_secret_is_masked(text: str) -> None:
    assert "hunter2" not in masked_words([text])[0]
    assert redaction.MASK in masked(text)


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "--x={}", "python -c 'f(\"{}\")'", "x {} y", "https://h/{}?a=1"])
def test_tokens_of_known_services_are_masked_wherever_they_stand(token: str, around: str) -> None:
    if around.startswith("https") and token[-40:] == HEX:
        return  # in a path it is one of git's
    assert token not in masked(around.format(token))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text
    assert masked_words(text.split(" ")) == text.split(" ")


def test_the_value_of_an_option_may_be_the_next_word() -> None:
    words = ["python", "t.py", "--token", "hunter2", "--revision", HEX, "--wandb-key", "--x", "a b"]
    assert masked_words(words) == [
        "python",
        "t.py",
        "--token",
        "***",
        "--revision",
        HEX,
        "--wandb-key",
        "--x",
        "a b",
    ]


def test_in_code_only_what_is_quoted_is_a_value() -> None:
    assert masked("x = sorted(y, key=len)", is_code=True) == "x = sorted(y, key=len)"
    assert masked("wandb.login(key='hunter2')", is_code=True) == "wandb.login(key='***')"
    assert masked("token = os.environ['T']", is_code=True) == "token = os.environ['T']"


def test_both_halves_mask_alike() -> None:
    here = (REPOSITORY / "wrapper/perfwrap/redaction.py").read_bytes()
    assert (REPOSITORY / "inject/perfwrap_recorder/redaction.py").read_bytes() == here


def test_the_shim_looks_closer_wherever_there_may_be_a_secret() -> None:
    text = (REPOSITORY / "inject/sitecustomize.py").read_text()
    begin = text.index("    HINTS = (")
    lines = text[begin : text.index("\n\n", begin)]
    found: dict[str, tuple[bytes, ...]] = {}
    exec("if True:\n" + lines, {}, found)
    assert all(any(hint in known.encode() for hint in found["HINTS"]) for known in redaction.HINTS)


@given(st.text(alphabet="kKeytoken=:'\" -/@.,x1\n\x1f&", max_size=60))
def test_any_text_can_be_masked_and_is_masked_once(text: str) -> None:
    once = masked(text)
    assert masked(once) == once


@given(st.lists(st.text(alphabet="-tokenky=:'\"/@x1 ", max_size=20), max_size=6))
def test_a_command_line_keeps_its_number_of_words(words: list[str]) -> None:
    assert len(masked_words(words)) == len(words)
