"""Results of ``hitm run`` and ``hitm exec``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from hitm import _command, _tables


class Result:
    """A result file: runs, and the contended lines of each."""

    def __init__(self, file: dict[str, Any]) -> None:
        if not str(file.get("schema", "")).startswith("hitm-result/"):
            raise ValueError(f"schema {file.get('schema')!r}: this is no result of hitm; see `hitm schema`")
        #: The file as ``hitm schema`` describes it.
        self.file = file

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs, one per machine, policy and mitigation."""
        return list(self.file["runs"])

    def table(self, kind: str = "pandas") -> Any:
        """Return a row per run. ``kind``: ``"pandas"``, ``"polars"`` or ``"arrow"``."""
        return _tables.frame(_tables.arrow("runs", self.file), kind)

    def lines(self, kind: str = "pandas") -> Any:
        """Return a row per contended line of each run, the hottest first."""
        return _tables.frame(_tables.arrow("lines", self.file), kind)

    def fields(self, kind: str = "pandas") -> Any:
        """Return a row per field of each contended line, by the function that accesses it."""
        return _tables.frame(_tables.arrow("fields", self.file), kind)

    def plot(self, ax: Any = None) -> Any:
        """Draw the metric of each mitigation over the baseline's, with 95 % intervals, by Matplotlib.

        Returns the axes.
        """
        import matplotlib.pyplot as plt

        ax = ax or plt.subplots(layout="constrained")[1]
        runs = [run for run in self.runs if run.get("relative") is not None]
        places = range(len(runs))
        values = [run["relative"] for run in runs]
        intervals = [run.get("relative_interval") or 0.0 for run in runs]
        ax.barh(places, values, xerr=intervals, color="#5b8db8", ecolor="#333333", capsize=3)
        published = [(place, run["published"]["relative"]) for place, run in zip(places, runs) if has_published(run)]
        if published:
            ax.plot([value for _, value in published], [place for place, _ in published], "D", color="#c0392b")
            ax.plot([], [], "D", color="#c0392b", label="published")
            ax.legend()
        ax.axvline(1.0, color="#777777", linewidth=0.8)
        ax.set_yticks(list(places), [run["mitigation"] for run in runs])
        ax.invert_yaxis()
        metric = runs[0]["metric"]["name"].replace("_", " ") if runs else "metric"
        ax.set_xlabel(f"{metric} over the baseline's")
        return ax

    def save(self, path: str | Path) -> None:
        """Write the file, for ``hitm c2c``, ``hitm compare`` and :func:`load`."""
        Path(path).write_text(json.dumps(self.file), encoding="utf-8")

    def c2c(self, lines: int = 5) -> str:
        """Return the report of the first run's contended lines, as ``hitm c2c`` prints it."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.json"
            self.save(path)
            return _command.command(["c2c", str(path), "--lines", str(lines)])

    def __repr__(self) -> str:
        return f"<hitm.Result: {len(self.runs)} runs, `{' '.join(['hitm', *self.file.get('command', [])])}`>"

    def _repr_html_(self) -> str:
        heads = ["mitigation", "machine", "policy", "metric", "± 95 %", "over baseline", "± 95 %", "kernel", "idle"]
        rows = [
            [
                run["mitigation"],
                run["machine"],
                run["arbitration"],
                f"{run['metric']['value']:,.0f} {run['metric']['unit']}",
                f"{run['metric']['interval']:,.0f}",
                number(run.get("relative")),
                number(run.get("relative_interval")),
                number(run["kernel_share"]),
                number(run["idle_share"]),
            ]
            for run in self.runs
        ]
        return html_table(heads, rows, caption=" ".join(["hitm", *self.file.get("command", [])]))


def has_published(run: Mapping[str, Any]) -> bool:
    """Whether a published figure stands beside a run."""
    return (run.get("published") or {}).get("relative") is not None


def number(value: float | None) -> str:
    """Return a share or a ratio as text."""
    return "" if value is None else f"{value:.3f}"


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]], caption: str) -> str:
    """Return a table for a notebook. Text of a result file never becomes markup."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><caption><code>{escape(caption)}</code></caption><tr>{head}</tr>{body}</table>"


def load(path: str | Path) -> Result:
    """Read a file that ``--json`` wrote."""
    return Result(json.loads(Path(path).read_text(encoding="utf-8")))


def run(
    workload: str,
    *,
    machine: str | Iterable[str] | None = None,
    cpus: int | Iterable[int] | str | None = None,
    mitigation: str | Iterable[str] | None = None,
    arbitration: str | Iterable[str] | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    duration: str | None = None,
    warm_up: str | None = None,
    coherence: str | None = None,
    model: Mapping[str, float] | None = None,
    jobs: int | None = None,
    progress: bool = False,
    **own: Any,
) -> Result:
    """Run a workload on a simulated machine, as ``hitm run`` does.

    ``workload``: ``"ffmpeg"``, or a probe with its name, ``"probe counter"``.
    ``own`` are the workload's own options: ``work="2us"``, ``burst_factor=0.06``, ``scale=True``.
    Raises :class:`hitm.CommandError` with the command's line when something is wrong.
    """
    words = _command.cases(
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
        jobs=jobs,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        _command.command(
            ["run", *workload.split(), *words, *_command.options(own), "--json", str(path)], progress=progress
        )
        return load(path)
