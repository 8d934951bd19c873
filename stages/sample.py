"""Continue the fixed prompts before and after training, write more stories, measure; nothing is picked or edited."""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.devices import choose_device
from tinygpt.files import write_json
from tinygpt.generation import Continuation, continue_text, next_token_odds
from tinygpt.model import GPT, initial_model
from tinygpt.params import SampleParams, load_params
from tinygpt.sample_stats import Writing, compare_writing
from tinygpt.tables import first_shard, read_batches, read_texts
from tinygpt.vocab import BOS, EOS, Vocab

HEADLINE = ("ended_share", "finished_share", "distinct_4", "repeated_4", "copied_median")


def sample(
    split_dir: Path = Path("data/split"),
    model_dir: Path = Path("data/model"),
    samples_path: Path = Path("reports/samples.json"),
    set_param: SetParam = None,
) -> None:
    """Continue the fixed prompts before and after training, write more stories, measure."""
    params = load_params(Path("params.yaml"), set_param)
    trained = load_model(need(model_dir / "best.pt", "train"))
    need(first_shard(split_dir, "train"), "split")
    vocab = trained.vocab
    device = choose_device(params.runtime)
    untrained = initial_model(trained.model.params, len(vocab), trained.seed).eval()

    samples = []
    for number, prompt in enumerate(params.sample.prompts):
        if unknown := vocab.unknown(prompt):
            print(f"sample: the vocabulary lacks {' '.join(unknown)} of {prompt!r}; read as <unk>", file=sys.stderr)
        entry: dict = {"prompt": prompt, "seed": params.sample.seed + number, "unknown": unknown}
        for when, model in (("before", untrained), ("after", trained.model)):
            written = continue_text(model.to(device), vocab, prompt, entry["seed"], params.sample)
            entry[when] = written._asdict()
        samples.append(entry)
    seeds = [params.sample.seed + number for number in range(params.sample.n_stories)]
    stories = write_stories(trained.model, vocab, seeds, params.sample)

    sets = {
        "before": writing(entry["before"] for entry in samples),
        "after": writing(entry["after"] for entry in samples),
        "stories": writing(story._asdict() for story in stories),
    }
    real = list(islice(read_texts(split_dir, "test"), max(len(stories), len(samples))))
    sources = ((id, text) for id, text, _ in chain.from_iterable(read_batches(split_dir, "train")))
    statistics, copies = compare_writing(sets, real, params.sample.max_new_chars, sources)
    of_stories = next(row for row in statistics if row["set"] == "stories")
    for entry, *pair in zip(samples, copies["before"], copies["after"], strict=True):
        for when, copy in zip(("before", "after"), pair, strict=True):
            entry[when]["copied"] = copy._asdict()
    content = {
        "stories": {name: of_stories[name] for name in HEADLINE},
        "statistics": statistics,
        "samples": samples,
        "written": [
            {"seed": seed, **story._asdict(), "copied": copy._asdict()}
            for seed, story, copy in zip(seeds, stories, copies["stories"], strict=True)
        ],
    }
    write_json(samples_path, content)
    print(
        f"sample: {len(samples)} prompts continued before and after training; {len(stories)} stories written, "
        f"{of_stories['ended_share']:.0%} came to an end; longest copy {of_stories['copied_longest']} characters"
    )


def writing(entries: Iterable[dict[str, Any]]) -> Writing:
    entries = list(entries)
    return Writing([entry["text"] for entry in entries], sum(entry["ended_by"] == "eos" for entry in entries))


@torch.no_grad()
def write_stories(model: GPT, vocab: Vocab, seeds: Sequence[int], params: SampleParams) -> list[Continuation]:
    """A story from `<bos>` for each seed, with its own random numbers, all stories side by side."""
    device = next(model.parameters()).device
    rngs = [torch.Generator().manual_seed(seed) for seed in seeds]
    ids = torch.full((len(seeds), 1), BOS)  # (B, T); a story that ended gets more <eos>
    ended = torch.zeros(len(seeds), dtype=torch.bool)
    while ids.shape[1] <= params.max_new_chars and not ended.all():
        rows = (~ended).nonzero()[:, 0]
        window = ids[rows, -model.params.context_size :].to(device)
        logits = model.lm_head(model.features(window)[:, -1]).float().cpu()  # (rows, V)
        new = torch.full((len(seeds), 1), EOS)
        for row, scores in zip(rows.tolist(), logits, strict=True):
            odds = next_token_odds(scores, params.temperature, params.top_k)
            new[row] = torch.multinomial(odds, 1, generator=rngs[row])
        ids = torch.cat((ids, new), dim=1)
        ended |= new[:, 0] == EOS
    return [
        Continuation(vocab.decode(row), "eos" if done else "limit")
        for row, done in zip(ids.tolist(), ended.tolist(), strict=True)
    ]


if __name__ == "__main__":
    run(sample)
