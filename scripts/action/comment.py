"""Write a comment on the pull request of a workflow, or replace the one that was written before.

    python scripts/action/comment.py comment.md

GitHub names the event in GITHUB_EVENT_PATH and its API in GITHUB_API_URL; the token is in PERFWRAP_TOKEN. Outside of a
pull request it does nothing. A comment that GitHub refuses, e.g. for a pull request of a fork, gives a warning only:
the result of the check must not be lost. Needs the standard library only.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MARKER = "<!-- perfwrap -->"
"""The first line of a comment of ours; other tools do not show it."""
MAX_CHARACTERS = 65_000
"""GitHub refuses longer comments."""
PER_PAGE, MAX_PAGES = 100, 30
PATIENCE_SECONDS = 30


def main(path: str, variables: Mapping[str, str] = os.environ) -> int:
    """Write the comment; return 0, also where GitHub refuses it."""
    number = pull_request(variables)
    if number is None:
        print("perfwrap: no comment: this is not a run for a pull request")
        return 0
    text = Path(path).read_text(encoding="utf-8")
    try:
        Comments(variables, number).write(f"{MARKER}\n{text}"[:MAX_CHARACTERS])
    except (OSError, ValueError, KeyError) as error:
        print(f"::warning title=perfwrap::The comment could not be written: {error}")
    return 0


def pull_request(variables: Mapping[str, str]) -> int | None:
    """Return the number of the pull request that this workflow runs for; None if there is none."""
    path = variables.get("GITHUB_EVENT_PATH")
    if not path or not Path(path).is_file():
        return None
    event = json.loads(Path(path).read_text(encoding="utf-8"))
    number = (event.get("pull_request") or {}).get("number")
    return number if isinstance(number, int) else None


class Comments:
    """The comments of a pull request, by GitHub's REST API (docs.github.com/rest/issues/comments)."""

    def __init__(self, variables: Mapping[str, str], number: int) -> None:
        """Take address, repository and token from the variables of the workflow."""
        api = variables.get("GITHUB_API_URL", "https://api.github.com")
        self._repository = f"{api}/repos/{variables['GITHUB_REPOSITORY']}"
        self._of_pull_request = f"{self._repository}/issues/{number}/comments"
        self._token = variables.get("PERFWRAP_TOKEN", "")

    def write(self, text: str) -> None:
        """Replace the comment that was written before; write a new one if there is none."""
        for comment in self._all():
            if str(comment.get("body") or "").startswith(MARKER):
                self._ask("PATCH", f"{self._repository}/issues/comments/{comment['id']}", {"body": text})
                return
        self._ask("POST", self._of_pull_request, {"body": text})

    def _all(self) -> Iterator[dict[str, Any]]:
        """Yield the comments of the pull request, the oldest first."""
        for page in range(1, MAX_PAGES + 1):
            found = self._ask("GET", f"{self._of_pull_request}?per_page={PER_PAGE}&page={page}")
            yield from found
            if len(found) < PER_PAGE:
                return

    def _ask(self, method: str, address: str, content: dict[str, str] | None = None) -> Any:
        """Send a request and return the answer; OSError (urllib's) if it is refused."""
        request = urllib.request.Request(  # noqa: S310 - the address is GitHub's own
            address,
            None if content is None else json.dumps(content).encode(),
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
            },
            method=method,
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:  # noqa: S310
            return json.load(answer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
