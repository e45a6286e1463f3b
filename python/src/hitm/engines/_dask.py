"""Jobs on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hitm._job import Job, JobError, run_job


class Dask:
    """Run jobs on the workers of a ``distributed.Client``, which have this wheel.

    The scheduler runs the jobs of a lost worker again, ``retries`` times beside what its own
    setting ``distributed.scheduler.allowed-failures`` allows. Its dashboard shows the progress.
    A job that takes more than ``limit`` seconds is stopped, and fails.
    """

    def __init__(self, client: Any = None, *, retries: int = 3, limit: float | None = None) -> None:
        self.client = client
        self.retries = retries
        self.limit = limit

    def results(self, jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Job, str | Exception]]:
        """See :class:`hitm.engines.Engine`."""
        from distributed import as_completed, get_client

        client = self.client or get_client()
        # A task is named by its job: two sweeps that share a job share its run. A result lies on a
        # worker until it is asked for, and is lost with the worker; the scheduler then makes it again.
        begun = {
            client.submit(_attempt, job.line, self.limit, key=f"hitm-{job.key}", retries=self.retries, pure=True): job
            for job in jobs
        }
        try:
            for ended in as_completed(begun):
                error = ended.exception()
                yield begun[ended], error if error is not None else ended.result()
                ended.release()
        finally:
            client.cancel([future for future in begun if not future.done()])


def _attempt(line: str, limit: float | None) -> str | JobError:
    # The scheduler would try an exception again, and a failed run fails everywhere.
    try:
        return run_job(line, limit)
    except JobError as failed:
        return failed
