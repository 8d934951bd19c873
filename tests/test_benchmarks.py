import numpy as np
import pytest

from benchmarks import generation
from benchmarks.compare import difference
from benchmarks.training import VARIANTS, VOCAB_SIZE, flops_per_token, make_step, parts_of_a_step
from tinygpt.tokens import DTYPE, TokenStream


def test_the_interval_of_three_pairs_by_hand():
    # differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t = 4.303 for two degrees of freedom
    assert difference([1.1, 2.2, 3.3], [1.0, 2.0, 3.0]) == f"+0.2000 ± {4.303 * 0.1 / 3**0.5:.4f}"


def test_flops_of_the_default_shape_by_hand(params):
    C, L, T = 128, 4, 128
    assert flops_per_token(params.model) == 6 * (L * 12 * C * C + VOCAB_SIZE * C) + 12 * L * C * T


@pytest.fixture
def small(params, tiny_params, tmp_path):
    path = tmp_path / "stream.bin"
    np.random.default_rng(0).integers(VOCAB_SIZE, size=1000).astype(DTYPE).tofile(path)
    return params.model_copy(update={"model": tiny_params}), TokenStream(path)


@pytest.mark.parametrize("name", [name for name in VARIANTS if "compiled" not in name])
def test_every_variant_takes_a_step(small, name):
    step = make_step(name, 2, *small)
    step()
    step()


def test_the_parts_are_all_timed(small):
    parts = parts_of_a_step("fp32", 2, *small, n_steps=2)
    assert set(parts) == {
        *("batch", "attention", "MLP", "embedding, norms, residuals"),
        *("head and loss", "backward", "clip", "optimizer"),
    }
    assert all(milliseconds > 0 for milliseconds in parts.values())


def test_every_loop_of_the_generation_benchmark_writes(params, tiny_params, monkeypatch):
    """With weights of the same model on both sides: `loops` asserts that Hugging Face's scores are ours."""
    monkeypatch.setattr(generation, "N_NEW", 3)
    small = params.model_copy(update={"model": tiny_params.model_copy(update={"context_size": 100})})
    times = generation.take_turns(generation.loops(small), n_rounds=1)
    assert len(times) == 8 and all(timer.wall[0] > 0 for timer in times.values())


@pytest.mark.filterwarnings("ignore")  # quantize_dynamic is on its way out
def test_every_part_of_a_step_is_timed(params):
    times = generation.take_turns(generation.steps(params), n_rounds=1)
    assert len(times) == 8 and all(timer.wall[0] > 0 for timer in times.values())
