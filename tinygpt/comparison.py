"""Several runs side by side: what differs, what came of it, how sure that is."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from tabulate import tabulate

from tinygpt.markdown import html_cell
from tinygpt.measures import paired_interval, paired_t
from tinygpt.params import EvaluateParams

CURVES_FIGURE = "compare.svg"
NOT_WHAT_IS_RUN = ("seed", "runtime")  # params that do not make another experiment


class RunResult(NamedTuple):
    """What a run left behind in its revision: params.yaml and the files in reports/."""

    name: str
    params: dict[str, Any]
    metrics: dict[str, Any]
    stories: list[dict[str, str]]
    curve: list[dict[str, str]]
    samples: dict[str, Any]
    cost: dict[str, Any]

    @property
    def test_nats(self) -> float:
        return self.metrics["test"]["model"]["nats_per_token"]


class Group(NamedTuple):
    """Runs that differ in nothing but `seed`, one a seed; `params` are flat: {"model.n_layer": 4, …}."""

    name: str
    params: dict[str, Any]
    runs: dict[int, RunResult]

    @property
    def first(self) -> RunResult:
        return next(iter(self.runs.values()))


def group_runs(runs: Sequence[RunResult]) -> list[Group]:
    """Group runs by all params but `seed` and `runtime`, in order of appearance; a repeated seed counts once."""
    groups: dict[str, Group] = {}
    for run in runs:
        params = flat(run.params)
        key = repr(sorted(params.items()))
        group = groups.setdefault(key, Group(run.name, params, {}))
        if group.runs and run.params["seed"] not in group.runs:
            groups[key] = group._replace(name=f"{group.name}, {run.name}")
        group.runs.setdefault(run.params["seed"], run)
    return list(groups.values())


def flat(params: dict[str, Any]) -> dict[str, Any]:
    """{"model": {"n_layer": 4}} as {"model.n_layer": 4}, without what makes no other experiment."""
    flattened = {}
    for name, value in params.items():
        if name in NOT_WHAT_IS_RUN:
            continue
        section = value if isinstance(value, dict) else {None: value}
        flattened |= {f"{name}.{key}" if key else name: item for key, item in section.items()}
    return flattened


def changed_keys(groups: Sequence[Group]) -> list[str]:
    """The params in which the groups differ; a key that a group lacks differs."""
    keys = dict.fromkeys(key for group in groups for key in group.params)
    return [key for key in keys if len({repr(group.params.get(key, "-")) for group in groups}) > 1]


def difference_by_story(
    group: Group, reference: Group, params: EvaluateParams
) -> tuple[float, float, float, int] | None:
    """group - reference in nats per token on the test stories of both: (difference, low, high, stories).

    Costs are averaged over the seeds; unknown characters are charged, so that runs with different
    vocabularies compare. None where the two have no test story in common.
    """
    ours, theirs = _story_nats(group), _story_nats(reference)
    shared = [story for story in theirs if story in ours]
    if not shared:
        return None
    n_targets = {row["story"]: int(row["n_targets"]) for row in reference.first.stories}
    columns = ([table[story] for story in shared] for table in (ours, theirs, n_targets))
    return paired_interval(*map(np.array, columns), params)


def _story_nats(group: Group) -> dict[str, float]:
    """What each test story costs, by the key of the story, averaged over the runs of the group."""
    costs: dict[str, list[float]] = {}
    for run in group.runs.values():
        for row in run.stories:
            costs.setdefault(row["story"], []).append(float(row["nats"]) + float(row["unknown_nats"]))
    return {story: sum(nats) / len(nats) for story, nats in costs.items() if len(nats) == len(group.runs)}


def difference_by_seed(group: Group, reference: Group) -> tuple[float, float] | None:
    """group - reference in test nats per token over the seeds of both, if two or more: (mean, half of the interval)."""
    seeds = [seed for seed in reference.runs if seed in group.runs]
    if len(seeds) < 2:
        return None
    return paired_t(*([runs[seed].test_nats for seed in seeds] for runs in (group.runs, reference.runs)))


def make_comparison(groups: Sequence[Group], params: EvaluateParams) -> str:
    """The Markdown page; the first group is what the others are held against."""
    parts = ["# Comparison", _results(groups, params), _explanation(groups), f"![Loss by step]({CURVES_FIGURE})"]
    parts += ["## Written stories", _written(groups), "## Samples", _samples(groups)]
    return "\n\n".join(parts) + "\n"


def _results(groups: Sequence[Group], params: EvaluateParams) -> str:
    keys, reference = changed_keys(groups), groups[0]
    headers = ["run", *(f"`{key}`" for key in keys), "seeds", "test nats per token", "difference (95 %, by story)"]
    headers += ["difference (95 %, by seed)", "sliding", "bits per character", "minutes"]
    rows = []
    for group in groups:
        by_story, by_seed = None, None
        if group is not reference:
            by_story, by_seed = difference_by_story(group, reference, params), difference_by_seed(group, reference)
        tests = [run.metrics["test"] for run in group.runs.values()]
        rows.append(
            [
                group.name,
                *(_cell(group.params.get(key, "-")) for key in keys),
                len(group.runs),
                _spread([test["model"]["nats_per_token"] for test in tests], 4),
                "" if by_story is None else "{:+.4f} [{:+.4f}, {:+.4f}]".format(*by_story),
                "" if by_seed is None else "{:+.4f} ± {:.4f}".format(*by_seed),
                _spread([test["sliding"]["nats_per_token"] for test in tests], 4),
                _spread([test["model"]["bits_per_char"] for test in tests], 3),
                _spread([run.cost["minutes"] for run in group.runs.values()], 1),
            ]
        )
    return _table(rows, headers)


def _explanation(groups: Sequence[Group]) -> str:
    stories = [{row["story"] for row in group.first.stories} for group in groups]
    others = [group.name for group, own in zip(groups, stories, strict=True) if own != stories[0]]
    text = f"""Differences are to the first row, in nats per token; below zero is better. By story: both score the same
{len(stories[0]):,} test stories, and the interval says what other stories might have shown (bootstrap). By seed: the
same seeds trained both, and the interval says what other seeds might have shown (Student's t). Runs that
differ in nothing but `seed` are one row: mean ± standard deviation. Unknown characters are charged in the
difference by story."""
    if others:
        text += f" Not the same test stories as the first row, so only the shared ones count: {', '.join(others)}."
    return text


def _written(groups: Sequence[Group]) -> str:
    names = list(groups[0].first.samples["stories"])
    rows = [
        [group.name, *(_spread([run.samples["stories"][name] for run in group.runs.values()], 3) for name in names)]
        for group in groups
    ]
    return _table(rows, ["run", *(f"`{name}`" for name in names)])


def _samples(groups: Sequence[Group]) -> str:
    """The trained continuations of the first run of each group, prompt by prompt."""
    texts: dict[tuple, dict[str, str]] = {}
    for group in groups:
        for sample in group.first.samples["samples"]:
            texts.setdefault((sample["prompt"], sample["seed"]), {})[group.name] = _cell(sample["after"]["text"])
    rows = [
        [f"{_cell(prompt)} ({seed})", *(of_prompt.get(group.name, "") for group in groups)]
        for (prompt, seed), of_prompt in texts.items()
    ]
    return _table(rows, ["prompt (seed)", *(group.name for group in groups)])


def _spread(values: Sequence[float], digits: int) -> str:
    """One value as it is, several as mean ± standard deviation."""
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def _cell(value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    return "<br>".join(html_cell(str(item)).replace("|", "\\|") for item in items)


def _table(rows: Sequence[Sequence[Any]], headers: Sequence[str]) -> str:
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
