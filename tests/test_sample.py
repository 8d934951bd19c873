from stages.sample import write_stories
from tinygpt.generation import continue_text
from tinygpt.vocab import EOS, Vocab

VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫")))


def test_stories_side_by_side_are_those_written_alone(tiny_model, params):
    settings = params.sample.model_copy(update={"max_new_chars": 30})
    tiny_model.lm_head.bias.data[EOS] = 0.5  # so that some end early
    stories = write_stories(tiny_model, VOCAB, range(20), settings)
    assert stories == [continue_text(tiny_model, VOCAB, "", seed, settings) for seed in range(20)]
    assert {story.ended_by for story in stories} == {"eos", "limit"}
