"""The same file masks secrets in both halves."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perfwrap import redaction
from perfwrap.redaction import masked, masked_words

REPOSITORY = Path(__file__).resolve().parent.parent
HEX = "0123456789abcdef0123456789abcdef01234567"


def _of_the_shim() -> dict[str, Any]:
    """Return what the shim looks for, and how, without the rest of the shim."""
    tree = ast.parse((REPOSITORY / "inject/sitecustomize.py").read_text())
    wanted = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("HINTS", "ONLY_HEX"))
        or (isinstance(node, ast.FunctionDef) and node.name == "without_secrets")
    ]
    found: dict[str, Any] = {"bring_redaction": lambda: vars(redaction)}
    exec(compile(ast.Module(wanted, []), "sitecustomize.py", "exec"), found)
    return found


SHIM = _of_the_shim()

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
    "python train.py --api-key hunter2 --lr 0.1",
    "bash -c 'python train.py --api-key  hunter2'",
    "python train.py --api-key 'a b hunter2'",
    "python train.py --api-key \\\nhunter2",
    "python train.py\x1f--api-key\x1fhunter2",
    "python train.py --pw hunter2",
    "dbPass=hunter2",
    "site_auth=hunter2",
    "--session-cookie=hunter2",
    "Cookie: id=1; session=hunter2",
    "Authorization: Digest username=me, response=hunter2",
    "auth=Bearer hunter2",
    "['python', '--api-key', 'hunter2']",
    '["--api-key", "hunter2"]',
    "setdefault('API_TOKEN', 'hunter2')",
    "environ['API_TOKEN'] = 'hunter2'",
    "token := hunter2",
    "token => hunter2",
    "login(token=b'hunter2')",
    "{'credentials': ['me', 'hunter2']}",
    *(f"trainer.password=horse{sign}hunter2" for sign in ",;|}')&]<>`(\"=:"),
    *(f"x trainer.password=horse{sign}hunter2 --lr 1" for sign in ",;|}')&]<>`(\"=:"),
    r'{"password": "x\"hunter2"}',
    r'{"password": "x\\\"hunter2"}',
    r"{\"password\": \"hunter2\"}",
    r"{\"password\": \"x\\\"hunter2\"}",
    "PASSWORD=a'b c hunter2' python train.py",
    "PASSWORD='a b'hunter2 python train.py",
    *(f"postgres://me:a{sign}hunter2@db/runs" for sign in "/?#@:'\"<>,;"),
    *(f"https://me:a{sign}hunter2@db/runs" for sign in "/?#@:'\"<>,;"),
)
SECRETS_IN_CODE = (
    "wandb.login(key='hunter2')",
    "os.environ['HF_TOKEN'] = 'hunter2'",
    "os.environ.setdefault('HF_TOKEN', 'hunter2')",
    "token: str = 'hunter2'",
    "def login(token: Optional[str] = 'hunter2', retries=3):",
    "token = f'hunter2'",
    'token = """hunter2"""',
    "token = ('hunter2')",
    "url = 'https://example.org/?token=hunter2&size=1'",
    "os.system('python train.py --api-key hunter2')",
    "subprocess.run(['train', '--api-key', 'hunter2'])",
    "headers = {'Authorization': 'Bearer hunter2'}",
    "header = 'Authorization: Bearer hunter2'",
    "fields = {'my token': 'hunter2'}",
)
READABLE_CODE = (
    "x = sorted(y, key=len)",
    "token = os.environ['T']",
    "row.get('key', 'none')",
    "x = d['key']",
    "x = -key + 3",
    "f(key=a, b='c')",
    "if token == 'x':",
    "print(f'key={key}')",
    "print('key: ', x)",
    "print('key=%s' % key)",
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
    "--lr 0.1 --max-tokens 512 --tokenizer gpt2 --keys a,b",
    "bash -c 'python train.py --max-tokens 512 --tokenizer gpt2 --keys a,b --lr 0.1'",
    "forward_pass=3 backwardPass: 4 bypass=2",
    "http://localhost:8080/models/a@v1",
    "http://localhost:8080/?at=me@example.org",
    "git+ssh://example.org:22/a@v2",
    "a token, a key and an author",
)


@pytest.mark.parametrize("text", SECRETS)
def test_what_is_under_the_name_of_a_secret_is_masked(text: str) -> None:
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


def test_what_follows_a_value_stays() -> None:
    assert masked("?token=hunter2&size=1") == "?token=***&size=1"
    assert masked("Server=db;Password=hunter2;Database=runs") == "Server=db;Password=***;Database=runs"
    assert masked("python t.py --api-key hunter2 --lr 0.1") == "python t.py --api-key *** --lr 0.1"
    assert masked('{"password": "x\\"y", "lr": 0.1}') == '{"password": "***", "lr": 0.1}'
    assert masked("postgres://me:a/PW@db:1/runs --lr 1") == "postgres://***@db:1/runs --lr 1"
    assert masked("--token --lr 0.1") == "--token --lr 0.1"


@pytest.mark.parametrize("line", SECRETS_IN_CODE)
def test_in_code_what_is_quoted_is_masked(line: str) -> None:
    assert "hunter2" not in masked(line, is_code=True)
    assert redaction.MASK in masked(line, is_code=True)


@pytest.mark.parametrize("line", READABLE_CODE)
def test_in_code_what_is_not_quoted_is_no_value(line: str) -> None:
    assert masked(line, is_code=True) == line


@pytest.mark.parametrize(
    "piece", ["key ", "key=a'", "://", "token=a,", "--key \\", "a://b:c/", "'token: \"", "[key=("]
)
@pytest.mark.parametrize("is_code", [False, True])
def test_a_long_hostile_text_takes_no_longer_than_its_length(piece: str, is_code: bool) -> None:
    looked_at = 0

    class Watched(str):
        """Counts how many of its characters are looked at."""

        def __getitem__(self, place: Any) -> str:
            nonlocal looked_at
            found = str.__getitem__(self, place)
            looked_at += len(found)
            return found

    counts = []
    for times in (500, 1000):
        looked_at = 0
        masked(Watched(piece * times + "key" + " " * 10 * times), is_code)
        counts.append(looked_at)
    assert counts[1] < 3 * counts[0]


def test_both_halves_mask_alike() -> None:
    injected = REPOSITORY / "inject/perfwrap_recorder/redaction.py"
    assert injected.samefile(REPOSITORY / "wrapper/perfwrap/redaction.py")


def test_the_shim_looks_closer_wherever_there_may_be_a_secret() -> None:
    assert all(any(hint in known.encode() for hint in SHIM["HINTS"]) for known in redaction.HINTS)


@given(st.lists(st.text(alphabet="-paswdtokenuh=:'\"/@., x1", max_size=30), min_size=1, max_size=5))
@example(["f(" + HEX + ")"])
@example(['x="' + HEX + '",y'])
@example(["--pw", "hunter2"])
def test_the_shim_masks_what_the_recorder_masks(words: list[str]) -> None:
    joined = SHIM["without_secrets"]("\0".join(words).encode())
    assert joined.decode().split("\0") == masked_words(words)


@given(st.text(alphabet="kKeytoken=:'\" -/@.,x1\n\x1f&", max_size=60))
def test_any_text_can_be_masked_and_is_masked_once(text: str) -> None:
    once = masked(text)
    assert masked(once) == once


@given(st.lists(st.text(alphabet="-tokenky=:'\"/@x1 ", max_size=20), max_size=6))
def test_a_command_line_keeps_its_number_of_words(words: list[str]) -> None:
    assert len(masked_words(words)) == len(words)
