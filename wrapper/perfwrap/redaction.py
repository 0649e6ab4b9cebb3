"""Masks what looks like a secret in command lines and messages, before they are written.

Both halves use this file: ``inject/perfwrap_recorder/redaction.py`` is a link to it. Secrets are recognized by names
(``--api-key X``, ``TOKEN=X``, ``"password": "X"``), by the user part of addresses, and by the form of tokens of
well-known services. A password without a name looks like any other word and is not found. If the end of a value is
unclear, rather too much is masked. It uses no regular expressions, because importing them costs each new interpreter
some milliseconds, and no import at all, which the program could notice.
"""

MASK = "***"

SECRET_PARTS = (
    *("passw", "passphrase", "passcode", "secret", "credential", "apikey", "privatekey", "accesskey"),
    *("signature", "apitoken", "authtoken", "accesstoken"),
)
"""A name that contains one of these, without its hyphens and underscores, is that of a secret."""
SECRET_ENDS = ("token", "key", "pwd", "pswd", "auth", "cookie", "creds")
SECRET_NAMES = ("authorization", "bearer", "pw", "sig")
LAST_WORDS = ("_pass", "_pw", "_sig")
"""Suffixes of short names of passwords: ``--pass``, ``DB_PASS``, ``dbPw``."""
NO_PASSWORDS = ("forward_pass", "backward_pass", "forward_pw", "backward_pw")
"""Names about passes through a model, which are not secrets."""
WHOLE_LINES = ("authorization", "cookie")
"""Suffixes of the names of headers, whose values contain blanks and semicolons."""
COMMIT_NAMES = ("commit", "revision", "rev", "ref", "sha", "hash", "version", "branch")
"""Values of such names are git hashes, though they look like W&B keys."""

PREFIXES = (
    *(("sk-", 20), ("hf_", 20), ("nvapi-", 20), ("r8_", 20), ("npm_", 20), ("pypi-", 20), ("wandb_", 30)),
    *(("ghp_", 20), ("gho_", 20), ("ghu_", 20), ("ghs_", 20), ("ghr_", 20), ("github_pat_", 20)),
    *(("glpat-", 16), ("xoxb-", 16), ("xoxp-", 16), ("xoxa-", 16), ("AIza", 30), ("ya29.", 20), ("eyJ", 30)),
)
"""Prefixes of tokens, and their minimum length: OpenAI and others, Hugging Face, NVIDIA, Replicate, npm, PyPI, W&B;
GitHub; GitLab, Slack, Google, JSON Web Tokens."""
AWS_PREFIXES, AWS_LENGTH = ("AKIA", "ASIA"), 20
HEX_LENGTH = 40
"""The number of characters of a W&B key, all of them hexadecimal."""

WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
HEX = frozenset("0123456789abcdef")
QUOTES = frozenset("'\"`")
BLANKS = " \t\0\x1f"
"""Separators of words; the last two join those of a command line."""
SPACES = frozenset(BLANKS + "\r\n\v\f")
SEPARATORS = frozenset(",;&|)]}<>")
"""Characters that may follow a value, or be in it."""
BRACKETS = {"[": "]", "(": ")", "{": "}"}
PLAIN_PATHS = ("http", "https", "ssh", "git", "file", "s3", "gs", "hf")
"""Schemes of addresses that may have an @ after the host."""
CODE_PREFIXES = frozenset("rbfuRBFU")
"""Prefixes of a string in Python."""
ANNOTATION = WORD | frozenset(" []|")
KINDS = ("bearer", "basic", "digest", "token")
"""Words before a secret in an authorization header."""
FAR = 1000
"""Number of characters that are searched if the end of something may be missing."""
HINTS = (
    *("pass", "pw", "secret", "cred", "key", "token", "auth", "bearer", "cookie", "sig", "://", "pswd"),
    *(prefix.lower() for prefix, _ in PREFIXES),
    *(prefix.lower() for prefix in AWS_PREFIXES),
)
LONG_ENOUGH = 40
"""A text without a hint may still be a W&B key, if it is as long as one."""


def masked_words(words: "list[str]") -> "list[str]":
    """Return a command line without its secrets; the value of an option may be a word of its own."""
    found = []
    before = ""
    for word in words:
        follows = before.startswith("-") and WORD.issuperset(before) and not word.startswith("-")
        name, equals, value = word.partition("=")
        if follows and is_secret(before):
            word = MASK
        elif value and _is_name(name) and is_secret(name):
            word = name + equals + MASK
        elif not (follows and _is_commit(before)):
            word = masked(word)
        found.append(word)
        before = word
    return found


def masked(text: str, is_code: bool = False) -> str:
    """Return a text without its secrets; in code only quoted texts are values."""
    if not _may_hold_one(text):
        return text
    pieces = []
    name, at = "", 0
    while at < len(text):
        end = _end_of_word(text, at)
        if end > at:
            is_token = _is_token(text, at, end, name)
            name = text[at:end]
            pieces.append(MASK if is_token else name)
            value = None if is_token else _value_of(text, end, name, is_code)
            at = end
            if value is not None:
                pieces += [text[at : value[0]], MASK]
                at, name = value[1], ""
            continue
        end = _end_of_user(text, at, name)
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
    """Return whether this is the name of a secret: of an option, a variable, a key of a dictionary."""
    plain = name.lower().replace("_", "").replace("-", "").replace(".", "")
    if plain in SECRET_NAMES or plain.endswith(SECRET_ENDS) or any(part in plain for part in SECRET_PARTS):
        return True
    if not plain.endswith(("pass", "pw", "sig")):
        return False
    words = "_" + "".join("_" + letter if letter.isupper() else letter for letter in name)
    if name.upper() == name:
        words = "_" + name
    words = words.lower().replace("-", "_").replace(".", "_")
    return words.endswith(LAST_WORDS) and not words.replace("__", "_").endswith(NO_PASSWORDS)


def _may_hold_one(text: str) -> bool:
    """Return quickly whether a text must be searched, which is rare."""
    lower = text.lower()
    return any(hint in lower for hint in HINTS) or (
        len(text) >= LONG_ENOUGH and sum(map(lower.count, "0123456789")) >= HEX_LENGTH // 8
    )


def _is_name(text: str) -> bool:
    """Return whether all of it can be a name of an option, a variable or a configuration key (``+a.b``, ``a[b]``)."""
    return WORD.issuperset(text.strip("+~[]").replace("[", "").replace("]", ""))


def _end_of_word(text: str, at: int, most: int = 1 << 62) -> int:
    end = min(len(text), at + most)
    while at < end and text[at] in WORD:
        at += 1
    return at


def _skip(text: str, at: int, letters: "str | frozenset[str]", most: int = FAR) -> int:
    """Return the position of the first character not in this set, or the maximum length of such a text."""
    end = min(len(text), at + most)
    while at < end and text[at] in letters:
        at += 1
    return at


def _value_of(text: str, end: int, name: str, is_code: bool) -> "tuple[int, int] | None":
    """Return start and end of the value after the name of a secret; None if there is none."""
    if not is_secret(name):
        return None
    quote = _skip(text, end, "\\")
    within = _string_around(text, end - len(name)) if is_code else ""
    in_string = within not in ("", text[quote : quote + 1])
    is_quoted = text[quote : quote + 1] in QUOTES and not in_string
    if is_quoted:
        end = quote + 1
    end = _skip(text, end, "]")
    at = _skip(text, end, BLANKS)
    is_option, is_bearer = name.startswith("-"), name.lower() == "bearer"
    sign = text[at : at + 1]
    if sign in ("=", ":") and not text.startswith(("==", "::", "://"), at):
        at += 2 if text[at + 1 : at + 2] in ("=", ">") else 1  # := and => as well
    elif text.startswith("->", at):
        at += 2
    elif is_quoted and sign == "," and (is_option or name.lower() not in ("key", "token")):
        at = _skip(text, at + 1, BLANKS)  # ["--api-key", "X"], setdefault("API_TOKEN", "X")
        opened = _skip(text, at, "\\")
        if text[opened : opened + 1] not in QUOTES or text[opened + 1 : opened + 2] == "-":
            return None
    elif end < at and not is_quoted and (is_bearer or is_option and (in_string or not is_code)):
        if text.startswith("\\\n", at):
            at = _skip(text, at + 2, BLANKS)
        if is_option and text[at : at + 1] == "-":
            return None
        return _value_in_text(text, at, False)
    else:
        return None
    at = _skip(text, at, BLANKS)
    if not is_code:
        return _value_in_text(text, at, sign == ":" and name.lower().endswith(WHOLE_LINES))
    if in_string:  # a placeholder is not a value: "key={}", "key=%s", "key: "
        return None if text[at : at + 1] in ("{", "%", within) else _value_in_text(text, at, False)
    return _value_in_code(text, at, sign == ":")


def _string_around(text: str, at: int) -> str:
    """Return the quote around a position in a line of code, or an empty text."""
    quote, begin = "", max(text.rfind("\n", 0, at) + 1, at - FAR)
    while begin < at:
        if text[begin] == "\\":
            begin += 1
        elif quote:
            quote = "" if text[begin] == quote else quote
        elif text[begin] in "'\"":
            quote = text[begin]
        begin += 1
    return quote


def _value_in_code(text: str, at: int, is_annotated: bool) -> "tuple[int, int] | None":
    """Return start and end of the quoted value at this position in Python code."""
    if is_annotated:  # token: str = "X"
        end = _skip(text, at, ANNOTATION)
        if text[end : end + 1] == "=" and text[end + 1 : end + 2] != "=":
            at = end + 1
    at = _skip(text, at, BLANKS + "([{")
    at = _skip(text, at, CODE_PREFIXES, 2)
    quote = text[at : at + 1]
    if quote not in ("'", '"'):
        return None
    quotes = quote * 3 if text.startswith(quote * 3, at) else quote
    end, _ = _closing(text, at, quotes)
    return (at + len(quotes), end) if end > at + len(quotes) else None


def _value_in_text(text: str, at: int, is_line: bool) -> "tuple[int, int] | None":
    """Return start and end of the value at this position; for a header it is the whole line."""
    size = len(text)
    quote = _skip(text, at, "\\")
    if text[quote : quote + 1] in QUOTES:
        end, behind = _closing(text, quote, text[quote], quote - at)
        if end == quote + 1:
            return None
        if text[behind : behind + 1] not in WORD:
            return quote + 1, end
        return at, _end_of_value(text, behind)  # 'a'b is one word in a shell
    if text[at : at + 1] in BRACKETS:
        end = text.find(BRACKETS[text[at]], at, at + FAR)
        return at, _end_of_value(text, end if end >= 0 else at)
    end = _end_of_value(text, at)
    if is_line:
        while end < size and text[end] not in "'\"\r\n\0\x1f":
            end += 1
    elif text[at:end].lower() in KINDS and text[end : end + 1] in (" ", "\t"):
        end = _end_of_value(text, _skip(text, end, BLANKS))
    return (at, end) if end > at else None


def _closing(text: str, at: int, quote: str, slashes: int = 0) -> "tuple[int, int]":
    """Return the end of the quoted text that starts here, and the position after it; twice the end of an unclosed text.

    Inside another quoted text, both of its quotes have this number of backslashes before them.
    """
    size, end = len(text), at + len(quote)
    while end < size:
        begin = end
        while end < size and text[end] == "\\":
            end += 1
        count = end - begin
        if text.startswith(quote, end) and (count <= slashes or not slashes and count % 2 == 0):
            return end - (count if slashes else 0), end + len(quote)
        end += 1
    return size, size


def _end_of_value(text: str, at: int) -> int:
    """Return the end of a value without quotes: at a blank, or where another item starts."""
    while at < len(text) and text[at] not in SPACES:
        letter, following = text[at], text[at + 1 : at + 2]
        if letter in QUOTES:
            if following not in WORD:
                break
            closing = text.find(letter, at + 1, at + FAR)  # a'b c' is one word in a shell
            at = max(at, closing)
        elif _is_end(text, at):
            break
        at += 1
    return at


def _is_end(text: str, at: int) -> bool:
    """Return whether a value without quotes ends here, at a separator or at a quote after a backslash."""
    if text[at] == "\\":
        return text[at + 1 : at + 2] in QUOTES and text[at + 2 : at + 3] not in WORD
    return text[at] in SEPARATORS and _is_assigned(text, at + 1)


def _is_assigned(text: str, at: int) -> bool:
    """Return whether a name and its value follow: ``name=value``, ``"name":``."""
    if text[at : at + 1] in QUOTES:
        end = text.find(text[at], at + 1, at + FAR)
        return end >= 0 and text[end + 1 : end + 2] in (":", "=")
    end = _end_of_word(text, at, FAR)
    return end > at and text[end : end + 1] == "=" and text[end + 1 : end + 2] not in ("", "=", *SPACES)


def _end_of_user(text: str, at: int, scheme: str) -> int:
    """Return the end of user and password in an address, 0 if there are none."""
    if not text.startswith("://", at):
        return 0
    begin = end = at + 3
    last = 0
    colon = -1
    has_plain_path = scheme.lower() in PLAIN_PATHS
    while end < min(len(text), begin + FAR) and text[end] not in SPACES:
        letter = text[end]
        if letter == "@":
            last = end
        elif letter == ":" and colon < 0:
            colon = end
        elif letter in "/?#" and has_plain_path:
            # After a colon comes either a port, or a password, which may contain an unescaped slash.
            if last or colon < 0 or text[colon + 1 : end].isdecimal():
                break
        elif (letter in QUOTES or letter in "<>") and text[end + 1 : end + 2] not in WORD:
            break
        end += 1
    return last


def _is_token(text: str, at: int, end: int, name: str) -> bool:
    """Return whether a word looks like a token of a service."""
    word = text[at:end]
    size = end - at
    if size == AWS_LENGTH and word.startswith(AWS_PREFIXES) and word.isalnum() and word.isupper():
        return True
    if any(size >= least and word.startswith(prefix) for prefix, least in PREFIXES):
        return any(letter.isdecimal() for letter in word)
    own = word[6:] if word.startswith("local-") else word
    if len(own) != HEX_LENGTH or not HEX.issuperset(own) or own.isdecimal():
        return False
    # Hashes of commits occur in paths (Hugging Face's cache), after an @ (pip), or after a name for them.
    in_path = text[at - 1 : at] in ("/", "@") or text[end : end + 1] == "/"
    return not in_path and not _is_commit(name)


def _is_commit(name: str) -> bool:
    return name.lower().rstrip("_-").endswith(COMMIT_NAMES)
