"""Jobs on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from hitm._job import Job, run_job


class Ray:
    """Run jobs as tasks of Ray, on nodes that have this wheel. ``ray.init`` comes before.

    Ray runs the tasks of a lost worker again, up to ``retries`` times. Its dashboard shows the
    tasks by the names of their jobs. A job that takes more than ``limit`` seconds is stopped, and fails.
    """

    def __init__(self, *, retries: int = 3, cpus: float = 1, limit: float | None = None) -> None:
        self.retries = retries
        self.cpus = cpus
        self.limit = limit

    def results(self, jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Job, str | Exception]]:
        """See :class:`hitm.engines.Engine`."""
        import ray

        task = ray.remote(num_cpus=self.cpus, max_retries=self.retries)(run_job)
        begun = {task.options(name=job.name).remote(job.line, self.limit): job for job in jobs}
        left = list(begun)
        try:
            while left:
                ended, left = ray.wait(left)
                for reference in ended:
                    yield begun[reference], _outcome(reference)
        finally:
            for reference in left:
                ray.cancel(reference, force=True)


def _outcome(reference: object) -> str | Exception:
    import ray

    try:
        return str(ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause: object = error.cause
        return cause if isinstance(cause, Exception) else RuntimeError(str(error))
    except ray.exceptions.RayError as error:
        return RuntimeError(str(error))
