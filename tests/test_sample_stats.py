import pytest

from tinygpt.sample_stats import (
    Writing,
    compare_writing,
    distinct,
    equal_lengths,
    finished_share,
    real_writing,
    repeated,
)


def test_distinct_and_repeated_by_hand():
    texts = ["小猫小猫", "小狗"]  # 小猫 猫小 小猫 | 小狗
    assert distinct(texts, 2) == 3 / 4 and repeated(texts, 2) == 1 / 4
    assert distinct(["小猫", "小猫"], 2) == 1 / 2 and repeated(["小猫", "小猫"], 2) == 0  # not in one text
    assert distinct(["小"], 2) == repeated(["小"], 2) == 0  # no 2-gram at all


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("小猫来了。", 1),
        ("小猫来了。小狗", 5 / 7),
        ("他说：“好。”\n小猫", 7 / 9),  # the closing quote belongs to the sentence, the line end to none
        ("题目\n小猫来了！", 5 / 7),  # a line without a mark is not finished by the next one
        ("真的？！……好", 6 / 7),
        ("小猫", 0),
        ("", 0),
    ],
)
def test_finished_sentences(text, share):
    assert finished_share([text]) == pytest.approx(share)


def test_texts_are_cut_in_pairs_by_rank_of_length():
    ours, theirs = equal_lengths(["一", "一二三四五", "一二三"], ["甲乙丙丁", "甲乙"])
    assert (ours, theirs) == (["一二三四", "一二"], ["甲乙丙丁", "甲乙"])


def test_real_stories_are_cut_like_written_ones():
    assert real_writing(["一二三", "一二", "一二三四"], 3) == (["一二三", "一二", "一二三"], 1)


def test_each_set_has_its_real_counterpart():
    written = Writing(["小猫小猫小猫。", "小狗"], n_ended=1)
    real = ["大象去河边喝水。", "小狗跑了。", "不会用到。"]
    rows, copies = compare_writing({"w": written}, real, 7, [("a", "有小猫。"), ("b", "大象去山上。小狗叫。")])
    ours, theirs = rows
    assert (ours["set"], ours["whose"], theirs["whose"]) == ("w", "written", "real")
    assert ours["n_stories"] == theirs["n_stories"] == 2
    assert ours["ended_share"] == 0.5 and theirs["ended_share"] == 0.5  # 大象去河边喝水。 has more than 7 characters
    assert ours["n_chars_mean"] == 4.5 and theirs["n_chars_mean"] == 6
    assert ours["n_chars_compared"] == theirs["n_chars_compared"] == 7 + 2
    assert ours["repeated_4"] == 1 / 4 and theirs["repeated_4"] == 0  # 小猫小猫 猫小猫小 小猫小猫 猫小猫。
    assert ours["copied_longest"] == 3 and ours["copied_median"] == 2.5  # 小猫。 and 小狗
    assert theirs["copied_longest"] == 3 and theirs["finished_share"] == 5 / 12
    assert copies["w"] == [("小猫。", "a"), ("小狗", "b")]
