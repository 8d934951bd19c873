import pickle

import pytest
import torch

from tinygpt.checkpoint import WorkFolder, describe_model, load_checkpoint, load_model, save_checkpoint
from tinygpt.vocab import Vocab

VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫")))  # with the specials 20 entries


@pytest.fixture
def content(tiny_model):
    described = describe_model(tiny_model, tiny_model.state_dict(), VOCAB, seed=3)
    return described | {"step": 7, "val_nats_per_token": 2.5}


def test_a_loaded_model_computes_the_same(tmp_path, tiny_model, content):
    save_checkpoint(tmp_path / "best.pt", content)
    trained = load_model(tmp_path / "best.pt")
    ids = torch.arange(12)[None]
    assert torch.equal(trained.model(ids), tiny_model(ids))
    assert not trained.model.training
    assert trained.vocab.characters == VOCAB.characters
    assert (trained.seed, trained.step, trained.val_nats_per_token) == (3, 7, 2.5)


def test_the_same_content_is_the_same_bytes_whatever_the_name(tmp_path, content):
    save_checkpoint(tmp_path / "a.pt", content)
    save_checkpoint(tmp_path / "another.pt", content)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "another.pt").read_bytes()


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


def test_loading_runs_no_code(tmp_path, capsys):
    torch.save({"weights": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match=r"evil\.pt is damaged or no checkpoint"):
        load_checkpoint(tmp_path / "evil.pt")
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ValueError, match=r"evil\.pkl is damaged or no checkpoint"):
        load_checkpoint(tmp_path / "evil.pkl")
    assert "executed" not in capsys.readouterr().out


def test_one_flipped_bit_is_named(tmp_path, content):
    path = tmp_path / "best.pt"
    save_checkpoint(path, content)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"best\.pt is damaged.*checksum"):
        load_checkpoint(path)


@pytest.mark.parametrize("keep", [0, 1, 1000])
def test_a_cut_off_file_is_named(tmp_path, content, keep):
    path = tmp_path / "best.pt"
    save_checkpoint(path, content)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"best\.pt is damaged"):
        load_checkpoint(path)


def test_a_damaged_work_checkpoint_gives_way_to_the_one_before(tmp_path, capsys):
    work = WorkFolder(tmp_path / "run")
    assert work.load() is None
    for step in (1, 2, 3):
        work.save({"step": step})
    assert work.load() == {"step": 3}
    work.latest.write_bytes(b"half a file")
    assert work.load() == {"step": 2}
    assert "latest.pt is damaged" in capsys.readouterr().err
    work.clear()
    assert not work.folder.exists()
