"""Recognises nsys exports that are folders, with a file for each table, without loading what reads them."""

from __future__ import annotations

from pathlib import Path

SUFFIX = ".parquet"
OTHER_SUFFIX = ".arrow"
"""Suffix of the files of `nsys export --type arrowdir`, each of which can only be read as a whole."""
SIGNS = ("META_DATA_EXPORT", "EXPORT_META_DATA", "StringIds", "CUPTI_ACTIVITY_KIND_KERNEL")
"""Tables of which a folder has at least one."""


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder with a file for each table, in a format of nsys that is readable or not."""
    return any((path / f"{sign}{suffix}").is_file() for sign in SIGNS for suffix in (SUFFIX, OTHER_SUFFIX))


def is_table(path: Path) -> bool:
    """Return whether a path is a file of such a folder."""
    return path.suffix in (SUFFIX, OTHER_SUFFIX) and is_folder(path.parent)


def is_readable(path: Path) -> bool:
    """Return whether such a folder has Parquet files."""
    return any((path / f"{sign}{SUFFIX}").is_file() for sign in SIGNS)
