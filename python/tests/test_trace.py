"""A timeline, read by Perfetto's published schema: what the Rust tests read by their own reader."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import hitm
from hitm._command import command

perfetto_trace = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
unknown_fields = pytest.importorskip("google.protobuf.unknown_fields")

CPUS = 8


def unknown(message: Any) -> list[str]:
    """Return the fields of a message, and of those within it, that the schema does not have."""
    found = [f"{message.DESCRIPTOR.full_name}.{own.field_number}" for own in unknown_fields.UnknownFieldSet(message)]
    for field, value in message.ListFields():
        if field.message_type is not None:
            repeated = not hasattr(value, "DESCRIPTOR")
            for inner in value if repeated else [value]:
                found += unknown(inner)
    return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """Return a trace of the whole measured stretch, and the run."""
    folder: Path = tmp_path_factory.mktemp("trace")
    words = f"run cyclic --cpus {CPUS} --mitigation baseline --seeds 1 --warm-up 1ms --duration 4ms --roles"
    files = ["--trace", str(folder / "t"), "--json", str(folder / "r.json")]
    command([*words.split(), "--trace-window", "1ms..5ms", *files])
    trace = perfetto_trace.Trace()
    trace.ParseFromString((folder / "t").read_bytes())
    return trace, hitm.load(folder / "r.json").runs[0]


def test_every_field_is_in_the_schema(kept: tuple[Any, dict[str, Any]]) -> None:
    trace, _ = kept
    assert len(trace.packet) > 100
    assert trace.IsInitialized()
    assert unknown(trace) == []


def test_tracks_have_names_and_slices_nest(kept: tuple[Any, dict[str, Any]]) -> None:
    trace, _ = kept
    described = [packet.track_descriptor for packet in trace.packet if packet.HasField("track_descriptor")]
    tracks = {own.uuid: own for own in described}
    names = [own.name for own in tracks.values()]
    assert [f"CPU {cpu}" in names and f"CPU {cpu} waits for lines" in names for cpu in range(CPUS)] == [True] * CPUS
    event = perfetto_trace.TrackEvent
    depth: dict[int, int] = defaultdict(int)
    begun: set[int] = set()
    ended: set[int] = set()
    packets = [packet for packet in trace.packet if packet.HasField("track_event")]
    for packet in sorted(packets, key=lambda packet: packet.timestamp):
        own = packet.track_event
        assert own.track_uuid in tracks
        begun |= set(own.flow_ids)
        ended |= set(own.terminating_flow_ids)
        depth[own.track_uuid] += {event.TYPE_SLICE_BEGIN: 1, event.TYPE_SLICE_END: -1}.get(own.type, 0)
        assert depth[own.track_uuid] >= 0
    assert set(depth.values()) == {0}
    assert ended and ended <= begun


def test_the_time_of_tasks_is_the_reports(kept: tuple[Any, dict[str, Any]]) -> None:
    trace, run = kept
    picos: dict[str, int] = defaultdict(int)
    for packet in trace.packet:
        own = packet.track_event
        if own.type == perfetto_trace.TrackEvent.TYPE_SLICE_BEGIN and "task" in own.categories:
            picos[own.name.split()[0]] += own.debug_annotations[0].uint_value
    units = run["metric"]["value"] * run["simulated_seconds"]
    assert run["roles"]
    for role in run["roles"]:
        reported = 1e6 * role["burst_micros"] * role["activations"] * units
        assert picos[role["name"]] == pytest.approx(reported, rel=1e-6)
