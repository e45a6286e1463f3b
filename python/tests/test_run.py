"""A run, and its tables."""

from __future__ import annotations

import pandas
import polars
import pytest

import hitm

SMALL = {"machine": "pack:2 l3:1 core:4 pu:2", "seeds": 1, "warm_up": "1ms", "duration": "5ms"}


@pytest.fixture(scope="module")
def result() -> hitm.Result:
    return hitm.run("cyclic", mitigation=["baseline", "all"], **SMALL)


def test_a_run_is_a_table(result: hitm.Result) -> None:
    table = result.table()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["mitigation"]) == ["baseline", "all"]
    assert table["relative"][0] == 1.0
    # 16 tasks that sleep for 100 us.
    assert 120_000 < table["value"][0] < 160_000
    assert isinstance(result.table("polars"), polars.DataFrame)
    assert result.table("arrow").num_rows == 2
    with pytest.raises(ValueError, match="'pandas', 'polars' and 'arrow'"):
        result.table("excel")


def test_waits_of_lines_and_fields_are_shares(result: hitm.Result) -> None:
    lines, fields = result.lines(), result.fields()
    for mitigation in ("baseline", "all"):
        own = lines[lines["mitigation"] == mitigation]["waits"]
        assert 0.5 < own.sum() <= 1.0 + 1e-9
        # A line's waits are those of its fields.
        assert fields[fields["mitigation"] == mitigation]["waits"].sum() == pytest.approx(own.sum())


def test_a_saved_result_is_the_same(result: hitm.Result, tmp_path) -> None:
    result.save(tmp_path / "r.json")
    assert hitm.load(tmp_path / "r.json").file == result.file
    assert "root_domain" in result.c2c()


def test_what_the_command_refuses_is_its_line() -> None:
    with pytest.raises(hitm.CommandError) as refused:
        hitm.run("cyclic", machine="gnr-2x12O", seeds=1)
    assert refused.value.status == 2
    assert "did you mean `gnr-2x120`" in str(refused.value)


def test_text_of_a_file_is_no_markup(result: hitm.Result) -> None:
    file = {**result.file, "runs": [{**result.runs[0], "mitigation": "<script>alert(1)</script>"}]}
    html = hitm.Result(file)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_a_plot_has_a_bar_per_mitigation(result: hitm.Result) -> None:
    import matplotlib

    matplotlib.use("Agg")
    ax = result.plot()
    assert [text.get_text() for text in ax.get_yticklabels()] == ["baseline", "all"]
