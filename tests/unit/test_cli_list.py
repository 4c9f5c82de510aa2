"""``collbench list``: what there is to choose from."""

import json

import pytest

from collbench.cli.list_ import THINGS


@pytest.mark.parametrize("thing", list(THINGS))
def test_every_list_is_a_table_and_json(cli, thing, monkeypatch):
    """Names are whole at 80 columns; --json holds the same rows."""
    monkeypatch.setenv("COLUMNS", "80")
    rows = json.loads(cli("list", thing, "--json").stdout)[thing]
    shown = cli("list", thing)
    assert shown == 0
    assert rows
    key = "algorithm" if thing == "algorithms" else next(iter(rows[0]))
    words = shown.stdout.split()
    assert [row[key] for row in rows if row[key] not in words] == []


def test_algorithms_of_one_collective(cli, golden, monkeypatch):
    """What is the same in all rows is said once above them."""
    monkeypatch.setenv("COLUMNS", "80")
    golden(
        "list_algorithms.txt",
        cli("list", "algorithms", "--provider", "openmpi", "--collective", "all_reduce").stdout,
    )


def test_volume_of_the_portable_algorithms(cli):
    """Ring allreduce sends 2(p−1)/p of the message from each rank."""
    rows = json.loads(
        cli("list", "algorithms", "--volume", "--ranks", "8", "--collective", "allreduce", "--json").stdout
    )
    assert {row["collective"] for row in rows["algorithms"]} == {"allreduce"}
    assert any(row["algorithm"] == "ring" for row in rows["algorithms"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [([], "list what?"), (["algoritms"], "did you mean 'algorithms'"),
     (["algorithms", "--provider", "openpmi"], "did you mean 'openmpi'"),
     (["algorithms", "--collective", "alreduce"], "did you mean 'allreduce'"),
     (["profiles", "--volume"], "belong to 'collbench list algorithms'")],
)  # fmt: skip
def test_wrong_use_is_one_sentence(cli, words, sentence):
    """Exit 2, with the nearest valid name."""
    result = cli("list", *words)
    assert result == 2
    assert sentence in result.stderr
