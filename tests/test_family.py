"""Every combination of the model's params in training: by heart, stopped, resumed, saved, loaded, sampled from."""

import numpy as np
import torch

from tests.test_model import VARIANTS, VOCAB, each
from tinygpt.checkpoint import describe_model, load_checkpoint, load_model, save_checkpoint
from tinygpt.generation import continue_text
from tinygpt.model import initial_model
from tinygpt.training import Run, update


@each(VARIANTS)
def test_it_learns_one_batch_is_saved_resumed_loaded_and_samples(tmp_path, params, tiny_params, variant):
    sizes = {"batch_size": 2, "max_steps": 1000, "warmup_steps": 1, "learning_rate": 0.03, "weight_decay": 0.0}
    train_params = params.train.model_copy(update=sizes)
    text = "小猫追兔，狗跑。一"
    stream = VOCAB.encode(text)  # one window of 8: every batch is the same
    model_params = tiny_params.model_copy(update=variant | {"n_layer": 1, "context_size": 8})

    def begin():
        return Run(initial_model(model_params, len(VOCAB), seed=0), train_params, seed=0)

    run = begin()
    first = update(run, stream).nats_per_token
    for _ in range(9):
        update(run, stream)
    save_checkpoint(tmp_path / "work.pt", run.state())
    resumed = begin()
    resumed.restore(load_checkpoint(tmp_path / "work.pt"))
    for _ in range(5):
        assert update(resumed, stream) == update(run, stream)
    for _ in range(10):
        last = update(resumed, stream).nats_per_token
    assert first > 2.5 and last < 0.1

    content = describe_model(resumed.model, resumed.model.state_dict(), VOCAB, seed=0)
    save_checkpoint(tmp_path / "best.pt", content | {"step": 25, "val_nats_per_token": last})
    loaded = load_model(tmp_path / "best.pt").model
    ids = torch.from_numpy(np.array(stream[None, :8], dtype=np.int64))
    assert torch.equal(loaded(ids), resumed.model.eval()(ids))

    assert VOCAB.decode(loaded(ids).argmax(-1)[0].tolist()) == text[1:]  # by heart
    beyond = params.sample.model_copy(update={"max_new_chars": 12})  # the context is 8
    assert continue_text(loaded, VOCAB, "猫", 1, beyond) == continue_text(resumed.model, VOCAB, "猫", 1, beyond)
