"""Engines: what runs the jobs of a sweep.

An engine is any object with the method of :class:`Engine`. It gets specifications and gives their
results, in any order. Who lost a worker runs its jobs again; a job gives the same bytes wherever
and however often it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from hitm._job import Job
from hitm.engines._dask import Dask
from hitm.engines._local import Local
from hitm.engines._ray import Ray
from hitm.engines._slurm import Slurm

__all__ = ["Dask", "Engine", "Local", "Ray", "Slurm"]


class Engine(Protocol):
    """What runs jobs."""

    def results(self, jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Job, str | Exception]]:
        """Run ``jobs`` and give each with its result's text, or with why it failed, as it ends.

        ``folder`` belongs to the sweep; an engine may keep files of its own there. Whoever stops
        to ask for results cancels the jobs that have not begun.
        """
        ...
