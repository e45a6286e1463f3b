"""Jobs as an array of Slurm."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from hitm import _command
from hitm._job import Job

SCRIPT = """\
#!/bin/sh
#SBATCH --job-name=hitm
#SBATCH --array=1-{tasks}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --output={folder}/slurm/%A_%a.log
{options}
# Task N makes the runs of lines (N - 1) x {each} + 1 to N x {each} of the file.
first=$(( (SLURM_ARRAY_TASK_ID - 1) * {each} + 1 ))
last=$(( SLURM_ARRAY_TASK_ID * {each} ))
[ "$last" -le {jobs} ] || last={jobs}
line=$first
status=0
while [ "$line" -le "$last" ]; do
    {hitm} job {lines} --line "$line" --results {done} || status=1
    line=$(( line + 1 ))
done
exit $status
"""


class Slurm:
    """Run jobs as an array of Slurm, whose nodes share the sweep's folder and have this wheel.

    ``options`` go to ``sbatch``, as in ``["--partition=short", "--time=10"]``. One task makes
    ``each`` runs. Whatever an array leaves undone is sent again, ``retries`` times. ``squeue`` shows
    the progress, ``scancel`` stops the array. Slurm itself stops a task at the limit of ``--time``.
    """

    def __init__(
        self, options: Sequence[str] = (), *, each: int = 1, retries: int = 2, sbatch: str = "sbatch"
    ) -> None:
        if each < 1:
            raise ValueError(f"each={each}: a task makes one run or more")
        self.options = list(options)
        self.each = each
        self.retries = retries
        self.sbatch = sbatch

    def script(self, jobs: int, lines: Path, folder: Path) -> str:
        """Return the text of the array's script: for those who send it by hand."""
        options = "".join(f"#SBATCH {option}\n" for option in self.options)
        return SCRIPT.format(
            tasks=-(-jobs // self.each),
            each=self.each,
            jobs=jobs,
            options=options,
            folder=folder,
            hitm=shlex.quote(_command.binary()),
            lines=shlex.quote(str(lines)),
            done=shlex.quote(str(folder / "done")),
        )

    def results(self, jobs: Sequence[Job], folder: Path) -> Iterator[tuple[Job, str | Exception]]:
        """See :class:`hitm.engines.Engine`."""
        own = folder / "slurm"
        own.mkdir(exist_ok=True)
        left = list(jobs)
        for _ in range(1 + self.retries):
            lines, script = own / "jobs.jsonl", own / "array.sh"
            lines.write_text("".join(job.line + "\n" for job in left), encoding="utf-8")
            script.write_text(self.script(len(left), lines, folder), encoding="utf-8")
            # With --wait it ends with the array; the status is that of the worst task.
            ended = subprocess.run([self.sbatch, "--wait", str(script)], capture_output=True, text=True, check=False)
            undone = []
            for job in left:
                path = folder / "done" / f"{job.key}.json"
                if path.is_file():
                    yield job, path.read_text(encoding="utf-8")
                else:
                    undone.append(job)
            left = undone
            if not left:
                return
        why = ended.stderr.strip().splitlines()
        last = f"; sbatch said: {why[-1]}" if why else ""
        for job in left:
            yield job, RuntimeError(f"no result after {1 + self.retries} arrays; see the logs in {own}{last}")
