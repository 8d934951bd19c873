"""Where a model is good and where it is bad: the costs of its targets, sorted in several ways.

Every table is a list of rows, so that JSON, Markdown and figures can all be made from it.
"""

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygpt.evaluation import Scores
from tinygpt.measures import Targets, paired_interval, story_sums
from tinygpt.params import EvaluateParams
from tinygpt.vocab import SPECIALS, UNK, Vocab

COMMON_SHARE = 0.8  # common characters: the fewest that make up so much of the Chinese text of training
FREQUENT_SHARE = 0.001  # frequent characters: at least so much of the text that is scored
N_WORST = 10
N_BINS = 10

Table = list[dict[str, Any]]


def model_tables(
    scores: Scores, targets: Targets, vocab: Vocab, train_counts: np.ndarray, context_size: int
) -> dict[str, Table]:
    """All tables of one model on one stream, scored in windows that do not overlap (`chunked`)."""
    return {
        "by_window_position": by_window_position(scores, context_size),
        "by_story_position": by_story_position(scores, targets),
        "by_class": by_class(scores, targets, vocab, train_counts),
        "worst_characters": worst_characters(scores, targets, vocab),
        "calibration": calibration(scores, targets),
    }


def by_window_position(scores: Scores, context_size: int) -> Table:
    """The loss by how many tokens of its window the model saw before a target, in doubling bins.

    Only for scores in windows that do not overlap (`chunked`).
    """
    n_seen = np.arange(len(scores.nats)) % context_size + 1
    return _in_doubling_bins(n_seen, scores.nats, "tokens_seen")


def by_story_position(scores: Scores, targets: Targets) -> Table:
    """The loss by a character's place in its story, the first being 1, in doubling bins."""
    firsts = np.searchsorted(targets.story, np.arange(len(targets.n_chars)))  # (S,)
    place = np.arange(len(targets.story)) - firsts[targets.story]  # 0 is <bos>
    place[targets.story == 0] += 1  # the first story's <bos> is no target
    chosen = targets.is_character
    return _in_doubling_bins(place[chosen], scores.nats[chosen], "place")


def _in_doubling_bins(numbers: np.ndarray, nats: np.ndarray, name: str) -> Table:
    """Rows for 1, 2, 3-4, 5-8, …: the bounds, how many targets, their loss."""
    exponents = np.frexp(numbers - 1)[1]  # log2, rounded up, exactly
    rows = []
    for exponent in np.unique(exponents):
        inside = exponents == exponent
        first, last = 2 ** int(exponent) // 2 + 1, min(2 ** int(exponent), int(numbers.max()))
        rows.append({f"{name}_from": first, f"{name}_to": last, **_loss(nats[inside])})
    return rows


def by_class(scores: Scores, targets: Targets, vocab: Vocab, train_counts: np.ndarray) -> Table:
    """The loss by kind of target, with how often the model expected the kind and how often it came.

    `train_counts` (V,) tells common Chinese characters from rare ones. `accuracy` is how often the
    likeliest id was right.
    """
    classes = character_classes(vocab, train_counts)  # (V,)
    rows = []
    for name in dict.fromkeys(classes):
        ids = np.flatnonzero(classes == name)
        inside = np.isin(targets.ids, ids)
        if not inside.any():
            continue
        rows.append(
            {
                "class": name,
                "n_distinct": len(ids),
                **_loss(scores.nats[inside]),
                "accuracy": float((scores.top_id == targets.ids)[inside].mean()),
                "observed_share": float(inside.mean()),
                "expected_share": float(scores.expected[ids].sum() / scores.expected.sum()),
            }
        )
    return rows


def character_classes(vocab: Vocab, train_counts: np.ndarray) -> np.ndarray:
    """The class of every id, (V,) strings: specials by name, then by what Unicode says of a character."""
    classes = np.array([*SPECIALS, *(_kind(character) for character in vocab.characters)], dtype=object)
    chinese = np.flatnonzero(classes == "Chinese")
    falling = chinese[np.argsort(-train_counts[chinese], kind="stable")]
    reached = np.cumsum(train_counts[falling]) - train_counts[falling]  # what the more frequent ones make up
    is_common = reached < COMMON_SHARE * train_counts[chinese].sum()
    classes[falling[is_common]] = "common Chinese"
    classes[falling[~is_common]] = "rare Chinese"
    return classes


def _kind(character: str) -> str:
    category = unicodedata.category(character)
    if "CJK UNIFIED IDEOGRAPH" in unicodedata.name(character, ""):
        return "Chinese"
    if character.isspace():
        return "white space"
    return {"P": "punctuation", "L": "letters and digits", "N": "letters and digits"}.get(category[0], "other")


def worst_characters(scores: Scores, targets: Targets, vocab: Vocab) -> Table:
    """The frequent characters with the highest loss, and what the model held likeliest where they stood."""
    characters = targets.ids[targets.is_character & (targets.ids != UNK)]
    counts = np.bincount(characters, minlength=len(vocab))
    frequent = np.flatnonzero(counts >= max(1, FREQUENT_SHARE * len(characters)))
    loss = np.bincount(targets.ids, scores.nats, len(vocab))[frequent] / counts[frequent]
    rows = []
    for place in np.argsort(-loss, kind="stable")[:N_WORST]:
        there = targets.ids == frequent[place]
        guesses = np.bincount(scores.top_id[there])
        guesses[frequent[place] : frequent[place] + 1] = 0
        guess = int(guesses.argmax()) if guesses.any() else None
        rows.append(
            {
                "character": vocab.characters[frequent[place] - len(SPECIALS)],
                **_loss(scores.nats[there]),
                "accuracy": float((scores.top_id[there] == frequent[place]).mean()),
                "mistaken_for": None if guess is None else _name(guess, vocab),
                "mistaken_share": 0.0 if guess is None else float(guesses[guess] / there.sum()),
            }
        )
    return rows


def _name(id: int, vocab: Vocab) -> str:
    return SPECIALS[id] if id < len(SPECIALS) else vocab.characters[id - len(SPECIALS)]


def calibration(scores: Scores, targets: Targets) -> Table:
    """How often the likeliest id was right (`observed`) against its probability (`expected`), in tenths."""
    right = scores.top_id == targets.ids
    bins = np.minimum((scores.top_p * N_BINS).astype(int), N_BINS - 1)
    rows = []
    for number in np.unique(bins):
        inside = bins == number
        expected, observed = float(scores.top_p[inside].mean()), float(right[inside].mean())
        bounds = {"p_from": number / N_BINS, "p_to": (number + 1) / N_BINS}
        rows.append({**bounds, "n_targets": int(inside.sum()), "expected": expected, "observed": observed})
    return rows


def calibration_error(table: Table) -> float:
    """The distance of expected and observed, averaged over the targets.

    Expected calibration error; source: Guo et al. 2017, arXiv 1706.04599.
    """
    n_targets = sum(row["n_targets"] for row in table)
    return sum(row["n_targets"] * abs(row["expected"] - row["observed"]) for row in table) / n_targets


def hits(scores: Scores, targets: Targets) -> dict[str, float]:
    """How often the likeliest id was right, and how far its probability was from that."""
    accuracy = float((scores.top_id == targets.ids).mean())
    return {"accuracy": accuracy, "calibration_error": calibration_error(calibration(scores, targets))}


def baseline_table(
    guesses: dict[str, dict[str, np.ndarray]],
    compressed: dict[str, dict[str, int]],
    model_nats: np.ndarray,
    targets: dict[str, Targets],
    windows: np.ndarray,
    curve: Sequence[dict[str, str]],
    params: EvaluateParams,
) -> Table:
    """What each baseline pays for val and test, how far it is from the model, when the model passed it.

    `guesses` are costs by target, (N - 1,) nats by split; `compressed` are bits by split; `model_nats`
    is what the model pays on test, (N - 1,).

    `gap` is baseline - model, in nats per token on test. `passed_at_step` is the first step of the
    training curve below `on_curve`: the baseline on the very targets of the curve's fixed windows,
    `windows`. A compressor has no costs by target; the curve is held against its whole val stream.
    """
    test, rows = targets["test"], []
    for name, nats in guesses.items():
        figures = _figures({split: costs.sum() for split, costs in nats.items()}, targets)
        sums = (story_sums(costs, test) for costs in (nats["test"], model_nats, np.ones(len(model_nats))))
        gap, low, high = paired_interval(*sums, params)
        on_curve = float(nats["val"][windows].mean())
        rows.append({"baseline": name, **figures, "gap": gap, "gap_95": [low, high], "on_curve": on_curve})
    for name, bits in compressed.items():
        figures = _figures({split: n_bits * math.log(2) for split, n_bits in bits.items()}, targets)
        gap, on_curve = figures["test_nats_per_token"] - float(model_nats.mean()), figures["val_nats_per_token"]
        rows.append({"baseline": name, **figures, "gap": gap, "gap_95": None, "on_curve": on_curve})
    return [{**row, "passed_at_step": passed_at(curve, row["on_curve"])} for row in rows]


def _figures(nats: dict[str, float], targets: dict[str, Targets]) -> dict[str, float]:
    """The total cost of each split in three units."""
    figures = {}
    for split, total in nats.items():
        figures[f"{split}_nats_per_token"] = float(total / len(targets[split].ids))
        figures[f"{split}_bits_per_char"] = float(total / math.log(2) / targets[split].n_chars.sum())
        figures[f"{split}_bits_per_byte"] = float(total / math.log(2) / targets[split].n_bytes.sum())
    return figures


def passed_at(curve: Sequence[dict[str, str]], nats_per_token: float) -> int | None:
    """The step of the first evaluation whose val loss is lower, None if there is none."""
    return next((int(row["step"]) for row in curve if float(row["val_nats_per_token"]) < nats_per_token), None)


def _loss(nats: np.ndarray) -> dict[str, Any]:
    return {"n_targets": len(nats), "nats_per_token": float(nats.mean())}
