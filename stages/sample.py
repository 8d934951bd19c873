"""Continue the fixed prompts before and after training, write more stories, measure; nothing is picked or edited."""

import sys
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.devices import choose_device
from tinygpt.files import write_json
from tinygpt.generation import unknown_note
from tinygpt.model import initial_model
from tinygpt.params import load_params
from tinygpt.sample_stats import Writing, compare_writing
from tinygpt.tables import first_shard, read_batches, read_texts
from tinygpt.writing import generate

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

    prompts = params.sample.prompts * params.sample.n_samples
    seeds = range(params.sample.seed, params.sample.seed + len(prompts))
    for prompt in params.sample.prompts:
        if note := unknown_note(vocab, prompt):
            print(f"sample: {prompt!r}: {note}", file=sys.stderr)
    before, after = (
        generate(model.to(device), vocab, prompts, seeds, params.sample) for model in (untrained, trained.model)
    )
    samples: list[dict[str, Any]] = [
        {
            "prompt": prompt,
            "seed": seed,
            "unknown": vocab.unknown(prompt),
            "before": before[number]._asdict(),
            "after": after[number]._asdict(),
        }
        for number, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True))
    ]
    seeds = [params.sample.seed + number for number in range(params.sample.n_stories)]
    stories = generate(trained.model, vocab, [""] * len(seeds), seeds, params.sample)

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


if __name__ == "__main__":
    run(sample)
