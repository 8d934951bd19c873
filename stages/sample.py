"""Continue the fixed prompts, before training and after; nothing is picked or edited."""

import sys
from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.devices import choose_device
from tinygpt.files import write_json
from tinygpt.generation import continue_text
from tinygpt.model import initial_model
from tinygpt.params import load_params


def sample(
    model_dir: Path = Path("data/model"),
    samples_path: Path = Path("reports/samples.json"),
    set_param: SetParam = None,
) -> None:
    """Continue the fixed prompts, before training and after; nothing is picked or edited."""
    params = load_params(Path("params.yaml"), set_param)
    trained = load_model(need(model_dir / "best.pt", "train"))
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
    settings = params.sample.model_dump(include={"temperature", "top_k", "max_new_chars"})
    write_json(samples_path, {"best_step": trained.step, **settings, "samples": samples})
    ended = sum(entry["after"]["ended_by"] == "eos" for entry in samples)
    print(f"sample: {len(samples)} prompts continued before and after training; {ended} stories came to an end")


if __name__ == "__main__":
    run(sample)
