import json

import pytest

from tinygpt.vocab import BOS, EOS, MAX_VOCAB_SIZE, UNK, Vocab


def test_the_textbook_example(book_vocab):
    assert [BOS, *book_vocab.encode("小兔跑。"), EOS] == [1, 5, 4, 6, 3, 2]
    assert [BOS, *book_vocab.encode("小猫跑。"), EOS] == [1, 5, 0, 6, 3, 2]
    assert book_vocab.decode([1, 5, 4, 6, 3, 2]) == "小兔跑。"
    assert book_vocab.decode([1, 5, 0, 6, 3, 2]) == "小跑。"  # <unk> has no character to show
    assert (UNK, BOS, EOS) == (0, 1, 2)


@pytest.mark.parametrize("text", ["", "兔", "a\nb\t ", "😀🐇", "e\u0301é", "\ue000\ufffd\u200b", "“从前”……——"])
def test_round_trip(text):
    vocab = Vocab.from_stories([text, "小兔"], min_count=1)
    assert vocab.decode(vocab.encode(text)) == text
    assert vocab.encode(text).dtype == "uint16"


def test_characters_are_sorted_and_rare_ones_left_out():
    vocab = Vocab.from_stories(["兔兔。", "小。"], min_count=2)
    assert vocab.characters == "。兔"
    assert vocab.unknown("小兔小猫。") == ["小", "猫"]


def test_save_and_load(tmp_path, book_vocab):
    book_vocab.save(tmp_path / "vocab.json")
    loaded = Vocab.load(tmp_path / "vocab.json")
    assert (loaded.characters, loaded.sha256) == (book_vocab.characters, book_vocab.sha256)


def test_a_changed_file_is_refused(tmp_path, book_vocab):
    path = tmp_path / "vocab.json"
    book_vocab.save(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "characters": "。兔小跳"}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"vocab\.json was changed"):
        Vocab.load(path)


def test_ids_must_fit_uint16():
    characters = [chr(code) for code in range(0x100, 0x11000) if not 0xD800 <= code < 0xE000]
    assert len(Vocab("".join(characters[: MAX_VOCAB_SIZE - 3]))) == MAX_VOCAB_SIZE
    with pytest.raises(ValueError, match=r"65,537 entries does not fit uint16.*raise vocab\.min_count"):
        Vocab("".join(characters[: MAX_VOCAB_SIZE - 2]))


def test_a_lone_surrogate_is_unknown_not_a_crash(book_vocab):
    assert book_vocab.encode("小\ud800").tolist() == [5, UNK]
