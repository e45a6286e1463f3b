"""Jobs on this machine, a process each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tqdm import tqdm

from hitm._job import Job, Processes


class Local:
    """Run jobs on this machine's cores, ``processes`` at once [default: one per core].

    A job that takes more than ``limit`` seconds is stopped, and fails.
    """

    def __init__(self, processes: int | None = None, *, limit: float | None = None, progress: bool = True) -> None:
        self.processes = processes or os.cpu_count() or 1
        self.limit = limit
        self.progress = progress

    def results(self, jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Job, str | Exception]]:
        """See :class:`hitm.engines.Engine`. A bar shows the progress."""
        processes = Processes()
        pool = ThreadPoolExecutor(self.processes, thread_name_prefix="hitm")
        begun = {pool.submit(processes.run, job.line, self.limit): job for job in jobs}
        try:
            with tqdm(total=len(jobs), unit="job", disable=not self.progress) as bar:
                for ended in as_completed(begun):
                    error = ended.exception()
                    yield begun[ended], error if isinstance(error, Exception) else ended.result()
                    bar.update()
        finally:
            for future in begun:
                future.cancel()
            processes.stop()
            pool.shutdown()
