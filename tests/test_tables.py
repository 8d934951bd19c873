import pyarrow.parquet as pq
import pytest

from tinygpt import tables
from tinygpt.tables import Shelf, StoryWriter, first_shard, n_rows, read_batches, read_texts, shards

ROWS = [(f"a:{number}", "小兔" * number, "test") for number in range(12)]


def write(folder, rows, name="train"):
    with StoryWriter(folder, name) as table:
        table.write(iter(rows))
    return table


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(tables, "ROWS_OF_A_SHARD", 5)
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 2)


def test_a_small_table_is_one_file(tmp_path):
    table = write(tmp_path, ROWS)
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]
    assert (table.n_stories, table.n_chars) == (12, 2 * sum(range(12)))
    assert pq.read_table(tmp_path / "train.parquet").to_pydict() == {
        name: list(values) for name, values in zip(("id", "text", "source"), zip(*ROWS, strict=True), strict=True)
    }


def test_a_large_table_is_sharded_and_read_in_order(tmp_path, small_shards):
    write(tmp_path, ROWS)
    assert [path.name for path in shards(tmp_path, "train")] == [f"train-0000{number}.parquet" for number in range(3)]
    assert first_shard(tmp_path, "train") == tmp_path / "train-00000.parquet"
    assert [pq.read_metadata(path).num_rows for path in shards(tmp_path, "train")] == [5, 5, 2]
    assert n_rows(tmp_path, "train") == 12
    batches = list(read_batches(tmp_path, "train"))
    assert [row for batch in batches for row in batch] == ROWS
    assert max(map(len, batches)) == 2
    assert list(read_texts(tmp_path, "train")) == [text for _, text, _ in ROWS]


def test_a_table_that_just_fills_its_shard_is_one_file(tmp_path, small_shards):
    write(tmp_path, ROWS[:5])
    assert [path.name for path in tmp_path.iterdir()] == ["train.parquet"]


def test_tables_whose_names_begin_alike_do_not_mix(tmp_path, small_shards):
    write(tmp_path, ROWS, "train")
    write(tmp_path, ROWS[:6], "train-small")
    assert n_rows(tmp_path, "train") == 12


def test_a_table_without_rows_and_a_missing_one(tmp_path):
    write(tmp_path, [])
    assert n_rows(tmp_path, "train") == 0 and list(read_texts(tmp_path, "train")) == []
    assert first_shard(tmp_path, "val") == tmp_path / "val.parquet" and shards(tmp_path, "val") == []


def test_a_failed_write_closes_its_file(tmp_path):
    with pytest.raises(RuntimeError), StoryWriter(tmp_path, "train") as table:
        table.write(ROWS[:1])
        raise RuntimeError
    assert table.file.is_open is False


def test_a_shelf_gives_back_any_row(tmp_path):
    shelf = Shelf(tmp_path / "rows")
    for row in [*ROWS, ("", "", ""), ("a\nb", "𠀀\0猫", "é")]:
        shelf.append(row)
    assert len(shelf) == 14
    assert [shelf[number] for number in (13, 0, 12, 5)] == [("a\nb", "𠀀\0猫", "é"), ROWS[0], ("", "", ""), ROWS[5]]
    shelf.close()
