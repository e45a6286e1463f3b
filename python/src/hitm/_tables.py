"""Tables of results, as Arrow makes them: one row per run, per contended line, per field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

#: What identifies a run in every table.
IDENTITY = ["workload", "machine", "cpus", "arbitration", "mitigation", "seed"]


def identity(run: dict[str, Any], cpus: dict[str, int]) -> dict[str, Any]:
    """Return the columns that identify a run."""
    return {
        "workload": run["workload"],
        "machine": run["machine"],
        "cpus": cpus.get(run["machine"]),
        "arbitration": run["arbitration"],
        "mitigation": run["mitigation"],
        "seed": run["seed"],
    }


def _runs(file: dict[str, Any]) -> Iterable[tuple[dict[str, Any], dict[str, Any]]]:
    cpus = {machine["name"]: machine["cpus"] for machine in file["machines"]}
    for run in file["runs"]:
        yield identity(run, cpus), run


def run_rows(file: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per run of a result file."""
    rows = []
    for own, run in _runs(file):
        published = run.get("published") or {}
        rows.append(
            own
            | {
                "seeds": len(run["seeds"]),
                "metric": run["metric"]["name"],
                "value": run["metric"]["value"],
                "interval": run["metric"]["interval"],
                "unit": run["metric"]["unit"],
                "relative": run.get("relative"),
                "relative_interval": run.get("relative_interval"),
                "published": published.get("relative"),
                "kernel_share": run["kernel_share"],
                "idle_share": run["idle_share"],
                "accesses": run["accesses"],
                "misses": run["misses"],
                "cycles_waited": run.get("cycles_waited"),
            }
        )
    return rows


def _waited(site: dict[str, Any]) -> float:
    """Return the cycles that all CPUs together waited at a place in the source."""
    # `cycles` has the means of remote HITMs, of local HITMs and of all misses.
    return float(site["misses"] * site["cycles"][2])


def _share(cycles: float, run: dict[str, Any]) -> float | None:
    """Return cycles as a share of all that the run waited; None in files without that sum."""
    waited = run.get("cycles_waited")
    return cycles / waited if waited else None


def line_rows(file: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per contended line of each run. ``waits``: its share of all waits of the run."""
    rows = []
    for own, run in _runs(file):
        for line in run["lines"]:
            rows.append(
                own
                | {
                    "object": line["object"],
                    "line": line["line"],
                    "waits": _share(sum(_waited(site) for field in line["fields"] for site in field["sites"]), run),
                    "loads": line["loads"],
                    "stores": line["stores"],
                    "misses": line["misses"],
                    "hitm_local": line["hitm_local"],
                    "hitm_remote": line["hitm_remote"],
                    "cycles_per_load": (line.get("cycles_per_load") or {}).get("mean"),
                }
            )
    return rows


def field_rows(file: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row per field of each contended line, by the function that accesses it."""
    rows = []
    for own, run in _runs(file):
        for line in run["lines"]:
            for field in line["fields"]:
                for site in field["sites"]:
                    rows.append(
                        own
                        | {
                            "object": line["object"],
                            "line": line["line"],
                            "field": field["field"],
                            "offset": field["offset"],
                            "function": site["function"],
                            "location": site["location"],
                            "kind": site["kind"],
                            "waits": _share(_waited(site), run),
                            "hits": site["hits"],
                            "misses": site["misses"],
                            "hitm_local": site["hitm_local"],
                            "hitm_remote": site["hitm_remote"],
                        }
                    )
    return rows


#: The tables by name.
TABLES = {"runs": run_rows, "lines": line_rows, "fields": field_rows}

_TEXT, _WHOLE, _NUMBER = pa.string(), pa.int64(), pa.float64()

_OWN = [
    ("workload", _TEXT),
    ("machine", _TEXT),
    ("cpus", _WHOLE),
    ("arbitration", _TEXT),
    ("mitigation", _TEXT),
    ("seed", _WHOLE),
]

#: The first column where results are of jobs.
KEY = pa.field("key", _TEXT)

#: The columns of each table. A table without rows has them too.
SCHEMAS = {
    "runs": pa.schema(
        [
            *_OWN,
            ("seeds", _WHOLE),
            ("metric", _TEXT),
            ("value", _NUMBER),
            ("interval", _NUMBER),
            ("unit", _TEXT),
            ("relative", _NUMBER),
            ("relative_interval", _NUMBER),
            ("published", _NUMBER),
            ("kernel_share", _NUMBER),
            ("idle_share", _NUMBER),
            ("accesses", _WHOLE),
            ("misses", _WHOLE),
            ("cycles_waited", _NUMBER),
        ]
    ),
    "lines": pa.schema(
        [
            *_OWN,
            ("object", _TEXT),
            ("line", _WHOLE),
            ("waits", _NUMBER),
            ("loads", _WHOLE),
            ("stores", _WHOLE),
            ("misses", _WHOLE),
            ("hitm_local", _WHOLE),
            ("hitm_remote", _WHOLE),
            ("cycles_per_load", _NUMBER),
        ]
    ),
    "fields": pa.schema(
        [
            *_OWN,
            ("object", _TEXT),
            ("line", _WHOLE),
            ("field", _TEXT),
            ("offset", _WHOLE),
            ("function", _TEXT),
            ("location", _TEXT),
            ("kind", _TEXT),
            ("waits", _NUMBER),
            ("hits", _WHOLE),
            ("misses", _WHOLE),
            ("hitm_local", _WHOLE),
            ("hitm_remote", _WHOLE),
        ]
    ),
}


def arrow(name: str, file: dict[str, Any]) -> pa.Table:
    """Return the table ``name`` of a result file."""
    return pa.Table.from_pylist(TABLES[name](file), schema=SCHEMAS[name])


def frame(table: pa.Table, kind: str) -> Any:
    """Return an Arrow table as ``kind``: ``"pandas"``, ``"polars"`` or ``"arrow"``."""
    if kind == "arrow":
        return table
    if kind == "pandas":
        return table.to_pandas()
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    raise ValueError(f"kind {kind!r}: there are 'pandas', 'polars' and 'arrow'")
