"""The report: numbers in, Markdown out."""

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from tinygpt.model import mlp_width, parameter_table
from tinygpt.params import SPLITS, Params

# The run that the textbook reports in chapter 8, on TinyStories-Zh.
TEXTBOOK_TEST_NATS = 2.5864
TEXTBOOK_BASELINE_NATS = 5.6841

LOSS_FIGURE = "loss.svg"
LEAK_FIGURES = ("mean", "p50", "p90", "p99", "max")


def make_report(
    params: Params,
    split: dict[str, Any],
    leaks: dict[str, Any],
    encoded: dict[str, Any],
    curve: Sequence[dict[str, float]],
    metrics: dict[str, Any],
    samples: dict[str, Any],
    cost: dict[str, Any],
) -> str:
    """Join the sections. The arguments are the contents of params.yaml and of the files in reports/."""
    sections = [
        f"# TinyGPT report\n\n{headline(metrics)}",
        _did_it_learn(metrics, curve),
        _what_it_writes(samples),
        _what_it_read(params, split, leaks, encoded),
        _how_it_learned(params, encoded, metrics, cost),
        _what_is_inside(params, encoded["vocab_size"]),
        _what_it_cost(cost),
        _all_params(params),
    ]
    return "\n\n".join(sections) + "\n"


def headline(metrics: dict[str, Any]) -> str:
    """The result in one line."""
    model, baseline = metrics["test"]["model"], metrics["test"]["baseline"]
    gap = baseline["nats_per_token"] - model["nats_per_token"]
    return (
        f"Test loss {model['nats_per_token']:.4f} nats per token, "
        f"{abs(gap):.2f} {'below' if gap > 0 else 'ABOVE'} the character-frequency baseline "
        f"({baseline['nats_per_token']:.4f}); {model['bits_per_char']:.3f} bits per character."
    )


def _did_it_learn(metrics: dict[str, Any], curve: Sequence[dict[str, float]]) -> str:
    rows = []
    for name, key in (("**TinyGPT**", "model"), ("character frequency", "baseline")):
        val, test = metrics["val"][key], metrics["test"][key]
        rows.append(
            [
                name,
                f"{val['nats_per_token']:.4f}",
                f"{test['nats_per_token']:.4f}",
                f"{test['perplexity']:.2f}",
                f"{test['bits_per_char']:.3f}",
            ]
        )
    rows.append(["textbook's TinyGPT, on other stories", "", TEXTBOOK_TEST_NATS, "", ""])
    rows.append(["textbook's character frequency, on other stories", "", TEXTBOOK_BASELINE_NATS, "", ""])
    headers = ["", "val nats per token", "test nats per token", "test perplexity", "test bits per character"]

    baseline = metrics["val"]["baseline"]["nats_per_token"]
    passed = next((row["step"] for row in curve if row["val_nats_per_token"] < baseline), None)
    passing = (
        f"The curve is under the baseline from the evaluation at step {passed:,.0f} on."
        if passed is not None
        else "The curve never gets under the baseline: check the data, the learning rate and the number of steps."
    )
    test = metrics["test"]
    return f"""## Did it learn?

{_table(rows, headers)}

The loss is the average of $-\\ln p$ over the {test["n_targets"]:,} targets of the test stream, each scored
once, in windows that do not overlap. $e^{{\\text{{loss}}}}$, the perplexity, is among how many equally likely
characters the model hesitates. Bits per character are the total cost over the {test["n_chars"]:,}
characters of the stories, story marks included. The baseline guesses by how often a character stands in the
training stories and looks at nothing before it: a model under it has used what came before. The textbook's
run read other stories (TinyStories-Zh) with another vocabulary, so its losses do not compare with ours; its
gap to its own baseline, {TEXTBOOK_BASELINE_NATS - TEXTBOOK_TEST_NATS:.2f} nats, says more.

![Loss by step on the fixed windows, and the baseline]({LOSS_FIGURE})

{passing} The model that all figures here are about is the one of step {metrics["best_step"]:,}, chosen by
the loss on fixed validation windows; only then was the test set read."""


def _what_it_writes(samples: dict[str, Any]) -> str:
    parts = [
        "## What does it write?",
        f"Fixed prompts and seeds, temperature {samples['temperature']}, top-k {samples['top_k']}, at most "
        f"{samples['max_new_chars']} new characters; nothing is chosen or edited. A block holds the new characters "
        "alone. Untrained is the same model with the random weights that training started from.",
    ]
    for sample in samples["samples"]:
        parts.append(f"### {sample['prompt']}")
        if sample["unknown"]:
            parts.append(f"The vocabulary lacks {' '.join(sample['unknown'])}: read as `<unk>`.")
        for when, title in (("before", "Untrained"), ("after", "Trained")):
            ending = "the model ended the story" if sample[when]["ended_by"] == "eos" else "cut at the limit"
            parts.append(f"{title} (seed {sample['seed']}; {ending}):")
            parts.append(_block(sample[when]["text"]))
    return "\n\n".join(parts)


def _what_it_read(params: Params, split: dict[str, Any], leaks: dict[str, Any], encoded: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{encoded[name]['n_stories']:,}",
            f"{encoded[name]['n_chars']:,}",
            f"{encoded[name]['n_bytes']:,}",
            f"{encoded[name]['n_tokens']:,}",
            f"{encoded[name]['n_unknown']:,}",
        ]
        for name in SPLITS
    ]
    return f"""## What did it learn from?

Source: `{params.download.source}`, {split["rows_in"]:,} stories. Changed by cleaning: {_counts(split["cleaned"])}.
Dropped: {_counts(split["dropped"])}. [dropped.md](dropped.md) says what each rule does and shows examples.
A story is wholly on one side.

{_table(rows, ["", "stories", "characters", "UTF-8 bytes", "tokens", "unknown characters"])}

The vocabulary has {encoded["vocab_size"]:,} entries: `<unk>`, `<bos>`, `<eos>` and the characters of the training
stories. A token is a character, or the mark before or behind a story.

{_duplicates(split["near_duplicates"])}

{_leaks(leaks)}"""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in counts.items() if n) or "none"


def _duplicates(found: dict[str, Any]) -> str:
    if found["policy"] == "ignore":
        return "**Near duplicates** were not looked for (`split.near_duplicates: ignore`)."
    fate = {"drop": "One of each cluster was kept", "together": "All were kept, a cluster wholly on one side"}
    return f"""**Near duplicates** are stories that share {found["similarity"]:.0%} or more of their distinct character
3-grams, letters and digits alone, directly or through others: {found["n_stories"]:,} stories in
{found["n_clusters"]:,} clusters, at most {found["largest_cluster"]:,} in one. {fate[found["policy"]]}. Without that,
{found["would_have_leaked"]:,} stories of val and test would have had a near duplicate in train."""


def _leaks(leaks: dict[str, Any]) -> str:
    n_gram = leaks["n_gram"]
    rows = []
    for name in SPLITS[1:]:
        share = leaks[name]["largest_share"]
        rows.append([name, f"{leaks[name]['n_stories']:,}", *(f"{share[key]:.1%}" for key in LEAK_FIGURES)])
    text = f"""**Leaks.** For each story of val and test: the largest share of its character {n_gram}-grams that stand
in any one training story. A copy would show 100 %, a set phrase a few percent. This count knows nothing of how the
duplicates were found.

{_table(rows, ["", "stories", "mean", "median", "90 of 100 below", "99 of 100 below", "largest"])}"""
    worst = max((pair for name in SPLITS[1:] for pair in leaks[name]["worst"]), key=lambda w: w["share"], default=None)
    if worst is None:
        return f"{text}\n\nNo story shares any with a training story."
    return f"""{text}

The worst pair, {worst["share"]:.1%}: `{worst["id"]}`, held out, and `{worst["train_id"]}`, in train. More of them stand
in [leaks.json](leaks.json).

{_block(worst["text"])}

{_block(worst["train_text"])}"""


def _how_it_learned(params: Params, encoded: dict[str, Any], metrics: dict[str, Any], cost: dict[str, Any]) -> str:
    train, context_size = params.train, params.model.context_size
    n_positions = cost["n_positions"]
    is_fp32 = cost["machine"]["precision"] == "fp32"
    precision = "All in float32." if is_fp32 else "Matrix products in bfloat16, all else in float32."
    n_steps = n_positions // (train.batch_size * context_size)
    passes = n_positions / encoded["train"]["n_tokens"]
    return f"""## How did it learn?

{n_steps:,} steps × {train.batch_size} windows × {context_size} tokens = **{n_positions:,} positions**,
{passes:.2f} times the {encoded["train"]["n_tokens"]:,} tokens of the training stream. The windows are drawn at
random, so some pieces were read more often than that and some less.

AdamW; the learning rate rises to {train.learning_rate} over {train.warmup_steps} steps, then falls along a cosine
to {train.min_lr_ratio:.0%} of that. Gradients longer than {train.grad_clip} are shortened to that length.
{precision} Every {train.eval_every} steps the same windows of the
training and validation streams were scored; the best was step {metrics["best_step"]:,}. The curve with the learning
rate and the length of the gradient is in [training.csv](training.csv)."""


def _what_is_inside(params: Params, vocab_size: int) -> str:
    table = parameter_table(params.model, vocab_size)
    total = sum(count for _, _, count in table)
    model = params.model
    rows = [[part, f"`{formula}`", f"{count:,}"] for part, formula, count in table]
    rows.append(["**total**", "", f"**{total:,}**"])
    return f"""## What is inside?

{_table(rows, ["part", "formula", "parameters"])}

V = {vocab_size:,} vocabulary entries, T = {model.context_size} positions, C = {model.n_embd} channels (`n_embd`),
L = {model.n_layer} blocks, D = {model.n_embd // model.n_head} channels of a head, F = {mlp_width(model)} channels
inside the MLP."""


def _what_it_cost(cost: dict[str, Any]) -> str:
    machine = cost["machine"]
    return f"""## What did it cost?

{cost["minutes"]:.1f} minutes at {cost["positions_per_second"]:,.0f} positions a second (evaluations not counted),
peak memory {cost["peak_memory_mib"]:,.0f} MiB, on: {machine["processor"]} ({machine["device"]},
{machine["n_procs"]} × {machine["n_threads"]} threads), {machine["system"]}, Python {machine["python"]}, PyTorch
{machine["torch"]}."""


def _all_params(params: Params) -> str:
    rows = []
    for name, value in params.model_dump(exclude={"runtime"}).items():
        section = value.items() if isinstance(value, dict) else [(None, value)]
        rows += [[f"`{name}.{key}`" if key else f"`{name}`", _cell(item)] for key, item in section]
    return f"## All params\n\n{_table(rows, ['key', 'value'])}"


def _cell(value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    return "<br>".join(str(item).replace("|", "\\|").replace("\n", " ") for item in items)


def _table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
    numbers = ["left"] + ["right"] * (len(headers) - 1) if len(headers) > 3 else None
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=numbers)


def _block(text: str) -> str:
    """A fenced block whose fence is longer than any in `text`."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
