"""Find contended cache lines on a simulated machine, from Python.

``run`` makes one comparison with the command ``hitm`` of this wheel. ``sweep`` makes many runs, on
this machine or by Dask, Ray or Slurm. Both give tables as pandas or Polars frames, through Arrow.
"""

from hitm._batch import Batch, jobs
from hitm._command import CommandError, command, version
from hitm._job import Job, JobError, run_job
from hitm._result import Result, load, run
from hitm._sweep import Sweep, open_sweep, sweep

__all__ = [
    "Batch",
    "CommandError",
    "Job",
    "JobError",
    "Result",
    "Sweep",
    "command",
    "jobs",
    "load",
    "open_sweep",
    "run",
    "run_job",
    "sweep",
    "version",
]
