"""Tables are what R, pandas and polars read, whatever stands in a cell."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqtool.core.errors import ConfigError, OutputError
from seqtool.lm.tables import check_target, open_table, write_table

TOKENS = [
    *('"', "'", '""', 'a"b', '"a"', "NA", "null", "NULL", "NaN", "nan", "None", "#", "# x", "a\tb"),
    *("a,b", "l\nm", "a\r", "\\", "\\t", "\\n", "=1+1", "-1", "007", "1e5", "TRUE", "T", "\xa0"),
    *(
        " ",
        " a ",
        "\u3000",
        "🐶",
        "e\u0301",
        "é",
        "\u200b",
        "\x0b",
        "\x85",
        "\u2028",
        "</s>",
        "inf",
    ),
]
BITS = [index / 8 for index in range(len(TOKENS))]
BITS[3] = math.inf
ENCODABLE = st.characters(exclude_categories=["Cs"])


def make(path: Path) -> Path:
    """Write the tokens in two parts, with a column that has no value at first."""
    half = len(TOKENS) // 2
    with open_table(path) as table:
        for part in (slice(0, half), slice(half, None)):
            num = len(TOKENS[part])
            more = [None] * num if part.start == 0 else [0.5] * num
            table.write({"token": TOKENS[part], "surprisal": BITS[part], "entropy": more})
    return path


@pytest.mark.parametrize("name", ["x.tsv", "x.csv", "x.TSV"])
def test_python_reads_them(tmp_path: Path, name: str) -> None:
    path = make(tmp_path / name)
    separator = "," if name == "x.csv" else "\t"
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter=separator, strict=True)
    assert header == ["token", "surprisal", "entropy"]
    assert [row[0] for row in rows] == TOKENS
    assert [float(row[1]) for row in rows] == BITS
    assert {row[2] for row in rows} == {"", "0.500000"}


def test_json_lines_keep_types_and_digits(tmp_path: Path) -> None:
    path = make(tmp_path / "x.jsonl")
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [row["token"] for row in rows] == TOKENS
    assert [row["surprisal"] for row in rows] == [*BITS[:3], None, *BITS[4:]]
    assert {row["entropy"] for row in rows} == {None, 0.5}
    columns = {"text": ["a", "\u00e9"], "n": np.array([1, 2]), "odd": ["\udc80", "b"]}
    with open_table(tmp_path / "y.jsonl") as table:
        table.write(columns)
    lines = (tmp_path / "y.jsonl").read_text(encoding="utf-8").splitlines()
    assert lines[0] == '{"text": "a", "n": 1, "odd": "\\udc80"}'
    assert json.loads(lines[1]) == {"text": "\u00e9", "n": 2, "odd": "b"}


def test_parquet_keeps_types_and_digits(tmp_path: Path) -> None:
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    write_table(path, ["n", "token", "bits"], [(1, '"', 1 / 3), (2, "a\tb", None)])
    read = parquet.read_table(path)
    assert read.to_pydict() == {"n": [1, 2], "token": ['"', "a\tb"], "bits": [1 / 3, None]}
    assert list(map(str, read.schema.types)) == ["int64", "string", "double"]
    table = parquet.read_table(make(tmp_path / "y.parquet"))  # whose first part has no entropies
    assert table["token"].to_pylist() == TOKENS
    assert str(table.schema.field("entropy").type) == "double"


REALS = (
    st.floats(width=64)
    | st.floats(0, 100)
    | st.integers(0, 10**7).map(lambda number: (number + 0.5) / 1e6)  # the middle between two
    | st.integers(0, 10**4).map(lambda number: number / 128)
)


@given(
    st.lists(st.tuples(REALS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text('a\0,"é'))),
    st.booleans(),
)
def test_arrays_are_written_as_python_writes_numbers(
    rows: list[tuple[float, int, bool, str]], one_by_one: bool
) -> None:
    """Alone too, as one number that is not plain has its whole column written in another way."""
    stream = io.StringIO(newline="")
    with open_table(stream) as table:
        for part in [[row] for row in rows] if one_by_one else [rows]:
            reals, numbers, missing, texts = zip(*part, strict=True) if part else ((),) * 4
            table.write(
                {
                    "real": np.array(reals, float),
                    "number": [None if no else n for n, no in zip(numbers, missing, strict=True)],
                    "other": [None if no else r for r, no in zip(reals, missing, strict=True)],
                    "text": list(texts),
                }
            )
    read = list(csv.reader(io.StringIO(stream.getvalue(), newline=""), delimiter="\t", strict=True))
    expected = [
        [f"{real:.6f}", "" if none else str(number), "" if none else f"{real:.6f}", text]
        for real, number, none, text in rows
    ]
    assert read[1:] == expected


def test_a_table_without_rows_has_a_header(tmp_path: Path) -> None:
    write_table(tmp_path / "x.csv", ["a", "b"], [])
    assert (tmp_path / "x.csv").read_text() == "a,b\n"


@pytest.mark.parametrize("name", ["x", "x.txt", "x.xlsx"])
def test_a_suffix_that_says_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no suffix of a table") as caught:
        check_target(tmp_path / name)
    assert ".parquet" in caught.value.hint
    (tmp_path / "x.tsv").mkdir(exist_ok=True)
    for path in (tmp_path / "none" / "x.csv", tmp_path / "x.tsv"):
        with pytest.raises(OutputError):
            check_target(path)
    write_table("/dev/null", ["a"], [(1,)])  # a device gets TSV


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_a_table_that_is_not_finished_is_not_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    with pytest.raises(ValueError, match=r"longer|length|unpack"), open_table(path) as table:
        table.write({"a": [1], "b": [1, 2]})
    assert list(tmp_path.iterdir()) == []
