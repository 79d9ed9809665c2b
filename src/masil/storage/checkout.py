"""Which commit the package, or a file of somebody's own, is from: what a record of a figure names."""

import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def commit() -> tuple[str | None, bool | None]:
    """Give the commit that masil is running from, and whether no file of the package differs from it."""
    with suppress(subprocess.SubprocessError, OSError):
        _ask_git("ls-files", "--error-unmatch", "__init__.py")  # else the repository is someone else's
        return _ask_git("rev-parse", "HEAD"), not _ask_git("status", "--porcelain", "--", ".")
    return None, None


def commit_with(file: Path) -> str | None:
    """Give the commit of the checkout that a file is in; None where it is in none, or differs from that commit."""
    with suppress(subprocess.SubprocessError, OSError):
        _ask_git("ls-files", "--error-unmatch", file.name, folder=file.parent)
        if not _ask_git("status", "--porcelain", "--", file.name, folder=file.parent):
            return _ask_git("rev-parse", "HEAD", folder=file.parent)
    return None


@cache
def has_commit(name: str) -> bool | None:
    """Say whether the history that masil is running from has a commit; None where there is none, or only its end."""
    if commit()[0] is None or _ask_git("rev-parse", "--is-shallow-repository") == "true":
        return None
    with suppress(subprocess.SubprocessError):
        _ask_git("merge-base", "--is-ancestor", name, "HEAD")
        return True
    return False


def _ask_git(*question: str, folder: Path | None = None) -> str:
    command = ["git", "-C", str(folder or PACKAGE), *question]
    return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, timeout=30).strip()  # noqa: S603
