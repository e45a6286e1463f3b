"""Sweeps by local processes: what is missing, torn, there twice, or interrupted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import hitm
from hitm import _command
from hitm.engines import Local


def local_bytes(folder: Path, sweep: hitm.Sweep) -> str:
    """Return what the command itself gives for the same sweep."""
    path = folder / "local.json"
    hitm.command([*sweep.words, "--json", str(path), "--state", str(folder / "state.jsonl")])
    return path.read_text()


def test_a_sweep_gives_what_the_command_gives(question, tmp_path) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", engine=Local(2, progress=False), **question)
    assert sweep.missing() == [] and sweep.failures == {}
    assert sweep.json() == local_bytes(tmp_path, sweep)
    assert len(sweep.table()) == 8
    assert len(sweep.runs()) == len(sweep.jobs) == 16
    assert set(sweep.lines()["mitigation"]) == {"baseline", "all"}
    # It is all there for another process.
    assert hitm.open_sweep(tmp_path / "s").runs("arrow").num_rows == 16


class Breaks:
    """Local, but interrupted after some results."""

    def __init__(self, after: int) -> None:
        self.after = after

    def results(self, jobs: Sequence[hitm.Job], folder: Path) -> Iterator[tuple[hitm.Job, str | Exception]]:
        for index, one in enumerate(Local(1, progress=False).results(jobs, folder)):
            if index == self.after:
                raise KeyboardInterrupt
            yield one


def test_an_interrupt_keeps_what_is_finished(question, tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        hitm.sweep("cyclic", folder=tmp_path / "s", engine=Breaks(5), **question)
    sweep = hitm.open_sweep(tmp_path / "s")
    assert len(sweep.missing()) == 11
    # Two whole points are there: four seeds, and one more run.
    assert len(sweep.table()) == 2
    assert sweep.runs("arrow").num_rows == 5
    # The same call goes on.
    again = hitm.sweep("cyclic", folder=tmp_path / "s", engine=Local(2, progress=False), **question)
    assert again.missing() == [] and again.json() == local_bytes(tmp_path, again)


def test_torn_results_run_again_and_changed_ones_are_refused(question, tmp_path) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", engine=Local(2, progress=False), **question)
    expect = sweep.json()
    done = tmp_path / "s" / "done"
    torn, twice, changed = sorted(done.glob("*.json"))[:3]
    torn.write_text(torn.read_text()[:1000])
    (done / "copy.json").write_text(twice.read_text())
    assert [job.key for job in sweep.missing()] == [torn.stem]
    assert sweep.run(Local(1, progress=False)) is None and sweep.json() == expect
    file = json.loads(changed.read_text())
    file["run"]["misses"] += 1
    (done / "other.json").write_text(json.dumps(file))
    with pytest.raises(hitm.CommandError, match="says otherwise: one of them is wrong"):
        sweep.json()
    (done / "other.json").unlink()
    file["job"]["seed"] += 7
    changed.write_text(json.dumps(file))
    with pytest.raises(hitm.CommandError, match="its `key` is not that of its `job`"):
        sweep.json()


def test_a_torn_table_is_written_again(question, tmp_path) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", engine=Local(2, progress=False), **question)
    expect = {name: getattr(sweep, name)("arrow") for name in ("runs", "lines", "fields")}
    for name in expect:
        torn, empty = sorted((tmp_path / "s" / name).glob("*.parquet"))[:2]
        torn.write_bytes(torn.read_bytes()[:-10])
        empty.write_bytes(b"")
    assert {name: getattr(sweep, name)("arrow") for name in expect} == expect


def test_a_job_that_never_ends_is_stopped_at_the_limit(tmp_path) -> None:
    machine = {"machine": "pack:2 l3:1 core:4 pu:2", "warm_up": "1ms"}
    endless, short = hitm.jobs({"workload": "cyclic", "duration": length, **machine} for length in ("1000s", "5ms"))
    batch = hitm.Batch(tmp_path, [endless, short])
    batch.run(Local(2, limit=10, progress=False))
    assert [job.key for job in batch.missing()] == [endless.key]
    assert str(batch.failures[endless.key]) == "hitm job: no result after 10 s, the engine's limit for a job"


def test_a_folder_belongs_to_one_sweep(question, tmp_path) -> None:
    hitm.sweep("cyclic", folder=tmp_path / "s", start=False, **question)
    with pytest.raises(ValueError, match="is of another sweep"):
        hitm.sweep("cyclic", folder=tmp_path / "s", start=False, **{**question, "seeds": 3})
    with pytest.raises(ValueError, match="no folder of a sweep"):
        hitm.open_sweep(tmp_path)
    with pytest.raises(hitm.CommandError, match="there is no such preset"):
        hitm.sweep("cyclic", folder=tmp_path / "t", machine="nothing")
    assert not (tmp_path / "t").exists()


def test_a_key_is_the_commands(question, tmp_path) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", start=False, **question)
    job = sweep.jobs[0]
    explained = hitm.command(["job", "-", "--explain"], stdin=job.line).splitlines()
    assert explained == [job.line, job.key]


def test_a_job_that_fails_stops_no_other(question, tmp_path, monkeypatch) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", start=False, **question)
    # A command that fails for one seed.
    wrapper = tmp_path / "hitm"
    wrapper.write_text(
        f'#!/bin/sh\nif [ "$1" = job ]; then text=$(cat); case "$text" in *\'"seed":2\'*) '
        f'echo "hitm: it stalled" >&2; exit 1;; esac; printf %s "$text" | {_command.binary()} "$@"; '
        f'else exec {_command.binary()} "$@"; fi\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("HITM", str(wrapper))
    sweep.run(Local(2, progress=False))
    assert len(sweep.failures) == len(sweep.missing()) == 8
    assert {str(why) for why in sweep.failures.values()} == {"hitm: it stalled"}


def test_a_batch_is_any_list_of_jobs(tmp_path) -> None:
    machine = {"machine": "pack:2 l3:1 core:4 pu:2", "warm_up": "1ms", "duration": "5ms"}
    prices = [100.0, 300.0]
    jobs = hitm.jobs({"workload": "cyclic", "model": {"other_package_ns": price}, **machine} for price in prices)
    batch = hitm.Batch(tmp_path, jobs)
    batch.run(Local(2, progress=False))
    rows = batch.runs("arrow").to_pylist()
    assert {row["key"] for row in rows} == {job.key for job in jobs}
    results = [batch.result(job) for job in jobs]
    assert [result.file["machines"][0]["model"]["other_package_ns"] for result in results] == prices
    with pytest.raises(hitm.CommandError, match="line 2: .*no such"):
        hitm.jobs([{"workload": "cyclic"}, {"workload": "cyclic", "machine": "none-such"}])


def test_a_probe_runs_too() -> None:
    result = hitm.run("probe counter", machine="pack:2 l3:1 core:4 pu:2", scope=["machine", "core"], duration="20us")
    assert list(result.table()["mitigation"]) == ["machine", "core"]
    assert "machine" in result._repr_html_()
