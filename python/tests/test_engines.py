"""The same sweep by each engine, with a worker that is lost in the middle: the same bytes."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import hitm
from hitm.engines import Dask, Local, Ray, Slurm

#: 200 runs of some milliseconds each.
QUESTION = {
    "machine": "pack:2 l3:1 core:4 pu:2",
    "cpus": [2, 4, 8, 16],
    "mitigation": ["baseline", "all", "cpupri-split", "rto-count=node", "shipped"],
    "seeds": 10,
    "warm_up": "1ms",
    "duration": "2ms",
}


@pytest.fixture(scope="module")
def expect(tmp_path_factory) -> str:
    """Return the bytes that the local executor of the command gives."""
    folder = tmp_path_factory.mktemp("local")
    sweep = hitm.sweep("cyclic", folder=folder / "s", start=False, **QUESTION)
    assert len(sweep.jobs) == 200
    path = folder / "local.json"
    hitm.command([*sweep.words, "--json", str(path), "--state", str(folder / "state.jsonl")])
    return path.read_text()


def when_some_are_done(folder: Path, act) -> threading.Thread:
    """Call ``act`` when 20 results are there."""

    def wait() -> None:
        while len(list((folder / "done").glob("*.json"))) < 20:
            time.sleep(0.02)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_local(expect: str, tmp_path) -> None:
    sweep = hitm.sweep("cyclic", folder=tmp_path, engine=Local(2, progress=False), **QUESTION)
    assert sweep.json() == expect


def test_dask_with_a_worker_that_is_killed(expect: str, tmp_path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        pids = list(client.run(os.getpid).values())
        sweep = hitm.sweep("cyclic", folder=tmp_path, start=False, **QUESTION)
        killer = when_some_are_done(tmp_path, lambda: os.kill(pids[0], signal.SIGKILL))
        sweep.run(Dask(client))
        killer.join()
        assert pids[0] not in client.run(os.getpid).values()
    assert sweep.failures == {}
    assert sweep.json() == expect


def test_dask_tries_a_failed_job_once(tmp_path, monkeypatch) -> None:
    distributed = pytest.importorskip("distributed")
    jobs = hitm.jobs([{"workload": "cyclic", "machine": "pack:1 l3:1 core:4 pu:2"}])
    tries = tmp_path / "tries"
    failing = tmp_path / "hitm"
    failing.write_text(f"#!/bin/sh\necho one >> {tries}\necho 'hitm: it stalled' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("HITM", str(failing))
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:
        batch = hitm.Batch(tmp_path / "batch", jobs)
        batch.run(Dask(client))
    assert str(batch.failures[jobs[0].key]) == "hitm: it stalled"
    assert tries.read_text() == "one\n"


def test_ray_with_a_worker_that_is_killed(expect: str, tmp_path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    killed: list[int] = []

    def kill() -> None:
        # The workers are the parents of the runs.
        parents = {parent for parent in map(worker_of, running()) if parent}
        for pid in sorted(parents)[:1]:
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    try:
        sweep = hitm.sweep("cyclic", folder=tmp_path, start=False, **QUESTION)
        killer = when_some_are_done(tmp_path, lambda: until(kill, killed))
        sweep.run(Ray())
        killer.join()
    finally:
        ray.shutdown()
    assert len(killed) == 1
    assert sweep.failures == {}
    assert sweep.json() == expect


def until(act, done: list[int]) -> None:
    """Repeat ``act`` until it has done something."""
    while not done:
        act()
        time.sleep(0.001)


def running() -> list[int]:
    """Return the processes that run a job."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 2 and words[0].endswith(b"hitm") and words[1] == b"job":
            found.append(int(path.parent.name))
    return found


def worker_of(pid: int) -> int | None:
    """Return the worker of Ray that runs the process."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        name = Path(f"/proc/{parent}/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return None
    return parent if name.startswith(b"ray::") else None


#: A stand-in for ``sbatch --wait SCRIPT``: it runs the tasks of the array one after the other, and
#: loses one task of the first array.
SBATCH = """\
#!/bin/sh
script=$2
last=$(sed -n 's/^#SBATCH --array=1-//p' "$script")
task=1
while [ "$task" -le "$last" ]; do
    if [ "$task" -eq 3 ] && [ ! -e "{mark}" ]; then touch "{mark}"; else SLURM_ARRAY_TASK_ID=$task sh "$script"; fi
    task=$((task + 1))
done
"""


def test_slurm_by_a_stand_in(expect: str, tmp_path) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(SBATCH.format(mark=tmp_path / "lost"))
    sbatch.chmod(0o755)
    engine = Slurm(["--partition=short", "--time=10"], each=20, sbatch=str(sbatch))
    sweep = hitm.sweep("cyclic", folder=tmp_path / "s", engine=engine, **QUESTION)
    assert (tmp_path / "lost").exists()
    script = (tmp_path / "s" / "slurm" / "array.sh").read_text()
    assert "#SBATCH --partition=short\n" in script
    assert sweep.failures == {}
    assert sweep.json() == expect
    assert sweep.runs("arrow").num_rows == 200
