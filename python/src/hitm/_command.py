"""The command ``hitm``: where it is, and how its options are written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class CommandError(RuntimeError):
    """The command could not do what was asked. ``str`` of it is the command's own line."""

    def __init__(self, line: str, status: int) -> None:
        super().__init__(line, status)
        self.line = line
        #: 1: the answer is a failure. 2: it could not be done. 3: results cannot be compared.
        self.status = status

    def __str__(self) -> str:
        return self.line


def binary() -> str:
    """Return the path of the command: ``HITM``, else that of this wheel, else that of ``PATH``."""
    named = os.environ.get("HITM")
    if named:
        return named
    name = "hitm.exe" if os.name == "nt" else "hitm"
    schemes = [None, "posix_user"] if os.name == "posix" else [None, "nt_user"]
    for scheme in schemes:
        folder = sysconfig.get_path("scripts", scheme) if scheme else sysconfig.get_path("scripts")
        beside = Path(folder) / name
        if beside.is_file():
            return str(beside)
    found = shutil.which(name)
    if found:
        return found
    raise CommandError("hitm: the command is not there; install the wheel, or set HITM to its path", 2)


def command(
    arguments: Iterable[str], *, stdin: str | None = None, progress: bool = False, cwd: str | Path | None = None
) -> str:
    """Run ``hitm`` with ``arguments`` and return what it prints.

    With ``progress`` its messages go to stderr as they come, its progress among them.
    Raises :class:`CommandError` when it ends with another status than 0.
    """
    ended = subprocess.run(
        [binary(), *arguments],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=None if progress else subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        check=False,
    )
    if ended.returncode != 0:
        lines = (ended.stderr or "").strip().splitlines()
        line = lines[-1] if lines else f"hitm: it ended with status {ended.returncode}"
        raise CommandError(line, ended.returncode)
    return ended.stdout


def version() -> str:
    """Return the version of the command."""
    return command(["--version"]).split()[-1]


def text(value: Any) -> str:
    """Return a value as an option takes it; several are joined by commas."""
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ",".join(text(one) for one in value)
    return str(value)


def options(given: Mapping[str, Any]) -> list[str]:
    """Return ``{"burst_factor": 0.06, "scale": True}`` as options; None and False are left out."""
    words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        words += [flag] if value is True else [flag, text(value)]
    return words


def cases(
    *,
    machine: str | Iterable[str] | None,
    model: Mapping[str, float] | None,
    **given: Any,
) -> list[str]:
    """Return the options that ``run`` and ``sweep`` share."""
    words: list[str] = []
    machines = [machine] if isinstance(machine, str) else list(machine or [])
    for name in machines:
        words += ["--machine", name]
    for name, value in (model or {}).items():
        words += ["--model", f"{name}={value}"]
    return words + options(given)
