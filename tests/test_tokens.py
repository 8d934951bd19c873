import numpy as np
import pytest

from tinygpt.tokens import TokenStream, pieces, write_stream


def test_known_stories_give_known_bytes(tmp_path, book_vocab):
    counts = write_stream(["小兔跑。", "小猫跑。", ""], book_vocab, tmp_path / "a.bin")
    assert (tmp_path / "a.bin").read_bytes() == bytes(
        [1, 0, 5, 0, 4, 0, 6, 0, 3, 0, 2, 0, 1, 0, 5, 0, 0, 0, 6, 0, 3, 0, 2, 0, 1, 0, 2, 0]
    )
    assert counts == {"n_stories": 3, "n_chars": 8, "n_bytes": 24, "n_unknown": 1, "n_tokens": 14}
    stream = TokenStream(tmp_path / "a.bin")
    assert isinstance(stream[:], np.memmap)  # read as it is used, not at once
    assert stream[:].tolist() == [1, 5, 4, 6, 3, 2, 1, 5, 0, 6, 3, 2, 1, 2]
    assert len(stream) == 14 and stream[-1] == 2
    assert stream[np.array([[0, 1], [12, 13]])].tolist() == [[1, 5], [1, 2]]
    assert [piece.tolist() for piece in pieces(stream, 6)] == [[1, 5, 4, 6, 3, 2], [1, 5, 0, 6, 3, 2], [1, 2]]


def test_an_empty_stream_is_named(tmp_path):
    (tmp_path / "a.bin").touch()
    with pytest.raises(ValueError, match=r"a\.bin is empty"):
        TokenStream(tmp_path / "a.bin")
