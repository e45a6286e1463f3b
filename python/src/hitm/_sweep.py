"""Sweeps: many runs, by any engine, into a folder that grows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from hitm import _command, _tables
from hitm._batch import Batch, write
from hitm._job import Job
from hitm._result import html_table
from hitm.engines import Engine


class Sweep(Batch):
    """A sweep and what is finished of it.

    Its folder is that of a :class:`Batch`, with ``sweep.json`` (the question) beside. It can be read
    while the sweep goes on, here or in another process: see :func:`open_sweep`.
    """

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        super().__init__(folder, [])
        #: The words of the command that makes the same sweep.
        self.words = list(words)

    @property
    def jobs(self) -> list[Job]:
        """All jobs."""
        if not self._jobs:
            self._jobs = self._emit([])
        return self._jobs

    def missing(self) -> list[Job]:
        """Return the jobs without a result. A result that was torn counts as missing."""
        return self._emit(["--results", str(self.done)])

    def table(self, kind: str = "pandas") -> Any:
        """Return a row per point: the runs of all seeds on one number of CPUs with one mitigation.

        A point with a missing run is left out.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "points.csv"
            _command.command([*self.words, "--results", str(self.done), "--csv", str(path)])
            empty = path.read_bytes().count(b"\n") < 2
            table = pa.csv.read_csv(path) if not empty else pa.table({})
        return _tables.frame(table, kind)

    def json(self) -> str:
        """Return the sweep as ``hitm sweep --json`` writes it: the same bytes, whoever ran the jobs."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "sweep.json"
            _command.command([*self.words, "--results", str(self.done), "--json", str(path)])
            return path.read_text(encoding="utf-8")

    def plot(self, ax: Any = None) -> Any:
        """Draw the metric over the number of CPUs, a curve per mitigation, with 95 % intervals."""
        import matplotlib.pyplot as plt

        ax = ax or plt.subplots(layout="constrained")[1]
        points = self.table("arrow").to_pylist()
        curves: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
        metric = metric_of(points)
        for point in points:
            curve = (point["machine"], point["arbitration"], point["mitigation"])
            curves.setdefault(curve, []).append((point["cpus"], point[metric], point["interval"]))
        several = [len({curve[part] for curve in curves}) > 1 for part in range(2)]
        for curve, values in curves.items():
            name = ", ".join([part for part, shown in zip(curve, several) if shown] + [curve[2]])
            cpus, height, interval = zip(*sorted(values))
            ax.errorbar(cpus, height, yerr=interval, marker="o", markersize=3, capsize=2, label=name)
        ax.set_xscale("log", base=2)
        ax.set_xlabel("CPUs")
        ax.set_ylabel(metric.replace("_", " "))
        ax.set_ylim(bottom=0)
        if curves:
            ax.legend()
        return ax

    def _repr_html_(self) -> str:
        table = self.table("arrow")
        rows = [[shown(value) for value in row.values()] for row in table.to_pylist()]
        left = len(self.missing())
        caption = " ".join(["hitm", *self.words]) + (f" ({left} of {len(self.jobs)} runs are missing)" if left else "")
        return html_table(table.column_names, rows, caption)

    def _emit(self, words: Sequence[str]) -> list[Job]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "jobs.jsonl"
            _command.command([*self.words, *words, "--emit-jobs", str(path)])
            return [Job(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metric_of(points: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of the metric's column: the sixth."""
    return list(points[0])[5] if points else "metric"


def shown(value: Any) -> str:
    """Return a cell of a table as text."""
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def sweep(
    workload: str,
    *,
    cpus: int | Iterable[int] | str | None = None,
    machine: str | Iterable[str] | None = None,
    mitigation: str | Iterable[str] | None = None,
    arbitration: str | Iterable[str] | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    duration: str | None = None,
    warm_up: str | None = None,
    coherence: str | None = None,
    model: Mapping[str, float] | None = None,
    engine: Engine | None = None,
    folder: str | Path | None = None,
    start: bool = True,
    **own: Any,
) -> Sweep:
    """Run a workload on several numbers of CPUs, as ``hitm sweep`` does, by an engine.

    ``engine``: one of :mod:`hitm.engines` [default: this machine's cores].
    ``folder``: where results grow [default: ``hitm-sweep-WORKLOAD``]. A folder of the same sweep
    goes on; one of another sweep is refused. With ``start=False`` nothing runs until
    :meth:`Sweep.run`.
    """
    words = ["sweep", workload]
    words += _command.cases(
        machine=machine,
        model=model,
        cpus=cpus,
        mitigation=mitigation,
        arbitration=arbitration,
        seeds=seeds,
        seed=seed,
        duration=duration,
        warm_up=warm_up,
        coherence=coherence,
    )
    words += _command.options(own)
    place = Path(folder if folder is not None else f"hitm-sweep-{workload}").resolve()
    question = place / "sweep.json"
    if question.is_file():
        before = json.loads(question.read_text(encoding="utf-8"))["command"]
        if before != words:
            raise ValueError(f"{place} is of another sweep, `hitm {' '.join(before)}`: name another folder")
    made = Sweep(place, words)
    if not question.is_file():
        # Wrong options are refused before anything is written.
        jobs = made.jobs
        (place / "done").mkdir(parents=True, exist_ok=True)
        write(question, (json.dumps({"schema": "hitm-sweep-folder/1", "command": words}) + "\n").encode())
        write(place / "jobs.jsonl", "".join(job.line + "\n" for job in jobs).encode())
    if start:
        made.run(engine)
    return made


def open_sweep(folder: str | Path) -> Sweep:
    """Open a sweep's folder, finished or not: another process may be filling it."""
    place = Path(folder).resolve()
    try:
        words = json.loads((place / "sweep.json").read_text(encoding="utf-8"))["command"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{place}: it is no folder of a sweep ({error}); name one that hitm.sweep made") from error
    made = Sweep(place, words)
    made.collect()
    return made
