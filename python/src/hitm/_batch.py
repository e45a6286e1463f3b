"""Many jobs, by any engine, into a folder that grows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from hitm import _command, _tables
from hitm._job import Job
from hitm._result import Result
from hitm.engines import Engine, Local


class Batch:
    """Jobs, and what is finished of them.

    The folder has ``done/KEY.json``, a result per job as ``hitm job`` writes it, and Parquet of the
    same: ``runs/``, ``lines/`` and ``fields/``. It can be read while the jobs run, by another
    process too.
    """

    def __init__(self, folder: str | Path, jobs: Sequence[Job]) -> None:
        self.folder = Path(folder).resolve()
        self._jobs = list(jobs)
        #: The jobs that failed, by key, and why.
        self.failures: dict[str, Exception] = {}

    @property
    def jobs(self) -> list[Job]:
        """All jobs."""
        return self._jobs

    @property
    def done(self) -> Path:
        """The folder of results."""
        return self.folder / "done"

    def missing(self) -> list[Job]:
        """Return the jobs without a result. A result that was torn counts as missing."""
        return [job for job in self.jobs if self._read_done(job.key) is None]

    def run(self, engine: Engine | None = None) -> None:
        """Run what is missing, and keep each result as it comes.

        ``engine``: one of :mod:`hitm.engines` [default: this machine's cores]. An interrupt (Ctrl-C,
        or the notebook's stop) cancels what has not begun; what is finished is kept, and another
        call goes on. A job that fails does not stop the others: see :attr:`failures`.
        """
        self.done.mkdir(parents=True, exist_ok=True)
        missing = self.missing()
        self.failures = {}
        if missing:
            for job, outcome in (engine or Local()).results(missing, self.folder):
                if isinstance(outcome, str):
                    write(self.done / f"{job.key}.json", outcome.encode())
                    self._tabulate(job.key, json.loads(outcome))
                else:
                    self.failures[job.key] = outcome
        self.collect()

    def collect(self) -> int:
        """Turn results that came into the folder by other means into Parquet; return how many."""
        count = 0
        for path in sorted(self.done.glob("*.json")):
            if not (self.folder / "runs" / f"{path.stem}.parquet").is_file():
                done = self._read_done(path.stem)
                # Torn, or still being written: its job counts as missing.
                if done is not None:
                    self._tabulate(path.stem, done)
                    count += 1
        return count

    def result(self, job: Job) -> Result | None:
        """Return the result of a job; None if it is missing."""
        done = self._read_done(job.key)
        return None if done is None else Result(done["result"])

    def runs(self, kind: str = "pandas") -> Any:
        """Return a row per finished run; ``key`` is its job's."""
        return self._read("runs", kind)

    def lines(self, kind: str = "pandas") -> Any:
        """Return a row per contended line of each finished run."""
        return self._read("lines", kind)

    def fields(self, kind: str = "pandas") -> Any:
        """Return a row per field of each contended line of each finished run."""
        return self._read("fields", kind)

    def __repr__(self) -> str:
        return f"<hitm.{type(self).__name__}: {len(self.jobs)} jobs, {len(self.missing())} missing, in {self.folder}>"

    def _read_done(self, key: str) -> dict[str, Any] | None:
        try:
            done = json.loads((self.done / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return done if isinstance(done, dict) and done.get("key") == key else None

    def _tabulate(self, key: str, done: Mapping[str, Any]) -> None:
        # The table of runs comes last: it says that the others are there.
        for name in reversed(list(_tables.TABLES)):
            folder = self.folder / name
            folder.mkdir(parents=True, exist_ok=True)
            table = _tables.arrow(name, done["result"])
            table = table.add_column(0, _tables.KEY, pa.repeat(pa.scalar(key, pa.string()), table.num_rows))
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(table, sink, compression="zstd")
            write(folder / f"{key}.parquet", sink.getvalue().to_pybytes())

    def _mend(self, paths: Iterable[str]) -> bool:
        """Write torn tables again from their results; without a result, remove them. Say if there were any."""
        found = False
        for path in map(Path, paths):
            try:
                pa.parquet.read_metadata(path)
            except pa.ArrowInvalid:
                found = True
                # Without its table of runs, a result counts as new; that goes first, so that an
                # interrupt here loses nothing.
                (self.folder / "runs" / path.name).unlink(missing_ok=True)
                path.unlink(missing_ok=True)
        if found:
            self.collect()
        return found

    def _read(self, name: str, kind: str) -> Any:
        paths = sorted(str(path) for path in (self.folder / name).glob("[!.]*.parquet"))
        schema = pa.schema([_tables.KEY, *_tables.SCHEMAS[name]])
        try:
            table = pa.dataset.dataset(paths, schema=schema, format="parquet").to_table()
        except pa.ArrowInvalid:
            if not self._mend(paths):
                raise
            return self._read(name, kind)
        order = [(column, "ascending") for column in _tables.IDENTITY]
        return _tables.frame(table.sort_by(order), kind)


def jobs(specs: Iterable[Mapping[str, Any]]) -> list[Job]:
    """Return the jobs of specifications, as ``hitm schema job`` describes them.

    ``{"workload": "cyclic", "cpus": 48, "model": {"other_package_ns": 180.0}}`` is one. What is wrong
    with one of them is a :class:`hitm.CommandError` that names its place in the list.
    """
    lines = [json.dumps({"schema": "hitm-job/1", **spec}) for spec in specs]
    if not lines:
        return []
    explained = _command.command(["job", "-", "--explain"], stdin="".join(line + "\n" for line in lines)).splitlines()
    return [Job(line) for line in explained[::2]]


def write(path: Path, data: bytes) -> None:
    """Write a file as a whole: no reader sees half of it."""
    # The name ends otherwise than results do, and is of this process.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    os.replace(part, path)
