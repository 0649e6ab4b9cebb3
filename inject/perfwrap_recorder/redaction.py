"""Masks what looks like a secret in command lines and messages, before anybody writes them down.

The same file stands in both halves, which share no code; a test holds them equal. It goes by names (``--api-key X``,
``TOKEN=X``, ``"password": "X"``), by the user's part of addresses, and by how the tokens of well-known services look.
A password that stands alone, under no name, looks like any other word and is not found. No regular expressions: to
import them would cost each interpreter that starts some milliseconds; and no import at all, which it could notice.
"""

MASK = "***"

SECRET_PARTS = (
    "passw",
    "passphrase",
    "secret",
    "credential",
    "apikey",
    "privatekey",
    "accesskey",
    "signature",
)
"""A name that holds one of these, its hyphens and underscores left out, is that of a secret."""
SECRET_ENDS = ("token", "key", "pwd")
SECRET_NAMES = ("auth", "authorization", "bearer", "cookie", "sig")
LAST_WORD = "_pass"
"""So ends the name of a password in short: ``--pass``, ``DB_PASS``."""
COMMIT_NAMES = ("commit", "revision", "rev", "ref", "sha", "hash", "version", "branch")
"""What stands under such a name is one of git's numbers, though it looks like a key of W&B's."""

PREFIXES = (
    *(("sk-", 20), ("hf_", 20), ("nvapi-", 20), ("r8_", 20), ("npm_", 20), ("pypi-", 20), ("wandb_", 30)),
    *(("ghp_", 20), ("gho_", 20), ("ghu_", 20), ("ghs_", 20), ("ghr_", 20), ("github_pat_", 20)),
    *(("glpat-", 16), ("xoxb-", 16), ("xoxp-", 16), ("xoxa-", 16), ("AIza", 30), ("ya29.", 20), ("eyJ", 30)),
)
"""How tokens begin, and how long they are at least: OpenAI and others, Hugging Face, NVIDIA, Replicate, npm, PyPI, W&B;
GitHub; GitLab, Slack, Google, JSON Web Tokens."""
AWS_PREFIXES, AWS_LENGTH = ("AKIA", "ASIA"), 20
HEX_LENGTH = 40
"""Characters of a key of W&B's, all of them hexadecimal."""

WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
HEX = frozenset("0123456789abcdef")
QUOTES = "'\""
VALUE_ENDS = frozenset(" \t\r\n\0\x1f'\"`,;&|)]}<>")
HINTS = (
    *("passw", "passp", "pass_", "pass-", "pass.", "secret", "credential", "key", "token", "pwd", "auth"),
    *("-pass", "_pass", "pass=", "pass:", 'pass"', "pass'", "bearer", "cookie", "sig", "://"),
    *(prefix.lower() for prefix, _ in PREFIXES),
    *(prefix.lower() for prefix in AWS_PREFIXES),
)
LONG_ENOUGH = 40
"""A text without a hint may still be a key of W&B's, if it is as long as one."""


def masked_words(words: "list[str]") -> "list[str]":
    """Return a command line without its secrets; the value of an option may be a word of its own."""
    found = []
    before = ""
    for word in words:
        follows = before.startswith("-") and "=" not in before and not word.startswith("-")
        name, equals, value = word.partition("=")
        if follows and is_secret(before):
            word = MASK
        elif word.startswith("-") and value and is_secret(name):
            word = name + equals + MASK
        elif not (follows and _is_commit(before)):
            word = masked(word)
        found.append(word)
        before = word
    return found


def masked(text: str, is_code: bool = False) -> str:
    """Return a text without its secrets; in code only what is quoted is a value."""
    if not _may_hold_one(text):
        return text
    pieces = []
    name, at = "", 0
    while at < len(text):
        end = _end_of_word(text, at)
        word = text[at:end]
        if word:
            pieces.append(MASK if _is_token(text, at, end, name) else word)
            name, at = word, end
            continue
        value = _value_of(text, at, name, is_code)
        if value is not None:
            pieces += [text[at : value[0]], MASK]
            at, name = value[1], ""
            continue
        end = _end_of_user(text, at)
        if end:
            pieces.append("://" + MASK)
            at, name = end, ""
            continue
        if text[at] not in " =:'\"":
            name = ""
        pieces.append(text[at])
        at += 1
    return "".join(pieces)


def is_secret(name: str) -> bool:
    """Say whether that is the name of something secret: of an option, a variable, a key of a dictionary."""
    plain = name.lower().replace("_", "").replace("-", "").replace(".", "")
    if plain in SECRET_NAMES or plain.endswith(SECRET_ENDS) or any(part in plain for part in SECRET_PARTS):
        return True
    return ("_" + name.lower().replace("-", "_").replace(".", "_")).endswith(LAST_WORD)


def _may_hold_one(text: str) -> bool:
    """Say quickly whether a text is to be looked at: nearly none is."""
    lower = text.lower()
    return any(hint in lower for hint in HINTS) or (
        len(text) >= LONG_ENOUGH and sum(map(lower.count, "0123456789")) >= HEX_LENGTH // 8
    )


def _end_of_word(text: str, at: int) -> int:
    while at < len(text) and text[at] in WORD:
        at += 1
    return at


def _value_of(text: str, at: int, name: str, is_code: bool) -> "tuple[int, int] | None":
    """Return where the value begins and ends that stands behind the name of a secret; None where none does."""
    if not name or not is_secret(name) or text[at - 1] in "=:":
        return None
    size = len(text)
    is_bearer = name.lower() == "bearer"
    if text[at] in QUOTES:  # the name itself is quoted
        at += 1
    while at < size and text[at] == " ":
        at += 1
    if at < size and text[at] in "=:" and not text.startswith(("==", "::", "://"), at):
        at += 1
    elif not is_bearer or is_code:
        return None
    while at < size and text[at] == " ":
        at += 1
    if at < size and text[at] in QUOTES:
        end = text.find(text[at], at + 1)
        return (at + 1, end if end >= 0 else size) if end != at + 1 else None
    if is_code:
        return None
    end = at
    while end < size and text[end] not in VALUE_ENDS:
        end += 1
    if name.lower().endswith("authorization"):  # a word more: the kind, and then what is secret
        while end < size and text[end] not in "'\"\n,;":
            end += 1
    return (at, end) if end > at else None


def _end_of_user(text: str, at: int) -> int:
    """Return where the user and password of an address end, 0 where there are none."""
    if not text.startswith("://", at):
        return 0
    end = at + 3
    last = 0
    while end < len(text) and text[end] not in "/ \t\r\n\0\x1f'\"<>?#":
        if text[end] == "@":
            last = end
        end += 1
    return last


def _is_token(text: str, at: int, end: int, name: str) -> bool:
    """Say whether a word looks like a token of a service's."""
    word = text[at:end]
    size = end - at
    if size == AWS_LENGTH and word.startswith(AWS_PREFIXES) and word.isalnum() and word.isupper():
        return True
    if any(size >= least and word.startswith(prefix) for prefix, least in PREFIXES):
        return any(letter.isdigit() for letter in word)
    own = word[6:] if word.startswith("local-") else word
    if len(own) != HEX_LENGTH or not HEX.issuperset(own) or own.isdigit():
        return False
    # A commit's number stands in paths (Hugging Face's cache), behind an @ (pip), or under a name that says so.
    in_path = text[at - 1 : at] in ("/", "@") or text[end : end + 1] == "/"
    return not in_path and not _is_commit(name)


def _is_commit(name: str) -> bool:
    return name.lower().rstrip("_-").endswith(COMMIT_NAMES)
