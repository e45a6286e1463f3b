"""Jobs: one run as a value. A job gives the same result on every host."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from hitm import _command


class JobError(RuntimeError):
    """A job's run failed, and would fail on every host. ``str`` of it is the command's own line."""


@dataclass(frozen=True)
class Job:
    """A run's specification: a line that ``hitm sweep --emit-jobs`` wrote."""

    #: The specification, as one line of JSON without its line feed.
    line: str

    @property
    def key(self) -> str:
        """The job's name: a hash of the specification and the version."""
        return sha256((self.line + "\n").encode()).hexdigest()

    @property
    def name(self) -> str:
        """The job in a few words, for lists of tasks."""
        spec = json.loads(self.line)
        return f"{spec['workload']} {spec['mitigation']} {spec['machine']}@{spec['cpus']} seed {spec['seed']}"


def run_job(
    line: str, limit: float | None = None, started: Callable[[subprocess.Popen[str]], None] | None = None
) -> str:
    """Make the run of a specification and return its result, as ``hitm job`` writes it.

    This is what an engine runs on its workers: it needs the wheel there, and no shared folder.
    A run that takes more than ``limit`` seconds is stopped; without a limit it may last for ever.
    ``started`` gets the process, so that whoever runs the job can stop it.
    Raises :class:`JobError` when the run fails or reaches the limit.
    """
    process = subprocess.Popen(
        [_command.binary(), "job", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    if started:
        started(process)
    try:
        out, messages = process.communicate(line, timeout=limit)
    except subprocess.TimeoutExpired:
        raise JobError(f"hitm job: no result after {limit:g} s, the engine's limit for a job") from None
    finally:
        # An interrupt stops the run too. A process that has ended is left as it is.
        process.kill()
        process.wait()
    if process.returncode != 0:
        lines = messages.strip().splitlines()
        raise JobError(lines[-1] if lines else f"hitm job: it ended with status {process.returncode}")
    return out


class Processes:
    """The running processes of an engine that runs jobs in threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def run(self, line: str, limit: float | None) -> str:
        """Run a job, unless the engine was stopped."""
        own: list[subprocess.Popen[str]] = []

        def started(process: subprocess.Popen[str]) -> None:
            own.append(process)
            with self._lock:
                self._running.add(process)
                if self._is_stopped:
                    process.kill()

        try:
            return run_job(line, limit, started)
        finally:
            with self._lock:
                self._running.difference_update(own)

    def stop(self) -> None:
        """Stop all that run, and all that would begin."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                process.kill()
