import pytest

from tinygpt.files import read_json, replacing, write_json


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "counts.json"
    write_json(path, {"n": 1})
    with pytest.raises(RuntimeError), replacing(path) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert read_json(path) == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole(tmp_path):
    folder = tmp_path / "split"
    for names in (["a", "b"], ["c"]):
        with replacing(folder) as partial:
            partial.mkdir()
            for name in names:
                (partial / name).touch()
    assert [path.name for path in folder.iterdir()] == ["c"]
    assert list(tmp_path.iterdir()) == [folder]


def test_what_a_killed_run_left_is_cleared_away(tmp_path):
    (tmp_path / ".split.partial").mkdir()
    (tmp_path / ".split.partial" / "half").touch()
    with replacing(tmp_path / "split") as partial:
        partial.mkdir()
    assert list((tmp_path / "split").iterdir()) == []


def test_json_refuses_nan_and_keeps_chinese(tmp_path):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(tmp_path / "x.json", {"loss": float("nan")})
    write_json(tmp_path / "x.json", {"text": "兔"})
    assert (tmp_path / "x.json").read_bytes() == '{\n  "text": "兔"\n}\n'.encode()


def test_broken_json_is_named(tmp_path):
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.json is not valid JSON"):
        read_json(tmp_path / "x.json")
