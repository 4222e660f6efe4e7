"""Laws of models as PyTorch modules: weights that are saved and loaded, copies for search, training loops of one's own."""

import torch

from regard.config import SearchOptions
from regard.data.ragged import Layout, Ragged
from regard.decoding.search import search_all
from regard.models.binary import BinaryModel
from regard.models.han import Han
from regard.models.masked_lm import MaskedLm
from regard.models.story_model import StoryModel
from regard.models.tagger import Labeller
from tests.laws.conftest import SOURCES, batch_for, build, extras_for, small

OPTIONS = SearchOptions(beam=3, max_extra=4, iterations=2)


def small_batch(model):
    return batch_for(model, [[5, 6, 7], [8, 9]], [[4, 5, 6, 7], [9, 10]])


def outputs(model):
    """What the model predicts: labels, or what search finds."""
    source = Ragged.from_lists(SOURCES)
    if isinstance(model, Labeller):
        with torch.inference_mode():
            return model.best(model.scores(source, extras_for(model, source))).tolist()
    if isinstance(model, MaskedLm):
        with torch.inference_mode():
            return model.scores(source, torch.tensor([1, 6]), extras_for(model, source)).argmax(dim=-1).tolist()
    if isinstance(model, StoryModel):
        with torch.inference_mode():
            return model.answers(small_batch(model)).argmax(dim=-1).tolist()
    if isinstance(model, Han):
        with torch.inference_mode():
            return model.scores(source, Layout([1, 2])).argmax(dim=-1).tolist()
    if isinstance(model, BinaryModel):
        with torch.inference_mode():
            return (model.logits(source).values > 0).tolist()
    [(_, best), *more] = search_all(model, [lambda: Ragged.from_lists(SOURCES)], options=OPTIONS)
    return dict(best) | {sentence: found for _, some in more for sentence, found in some}


def names_of_parameters(model):
    """The names of each parameter; tied ones have several."""
    names = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return sorted(names.values())


def train_one_step(model):
    """The loss before and after one step of plain gradient descent, with the same dropout."""
    losses = []
    for _ in range(2):
        model.train().noise.seed(1, 1)
        model.zero_grad()
        loss = model(small_batch(model), smoothing=0.1)
        loss.backward()
        losses.append(loss.item())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
    return losses


def test_weights_saved_by_pytorch_are_loaded_into_a_fresh_model_and_stay_tied(any_model, any_table):
    fresh = small(any_table)
    with torch.no_grad():
        for parameter in fresh.parameters():
            parameter.zero_()
    before = names_of_parameters(fresh)
    assert fresh.load_state_dict(any_model.state_dict(), strict=True) == ([], [])
    assert names_of_parameters(fresh) == before == names_of_parameters(any_model)
    for name, weight in any_model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], weight), name
    assert torch.equal(fresh(small_batch(fresh)), any_model(small_batch(any_model)))


def test_a_copy_for_search_shares_no_memory_and_leaves_the_model_as_it_was(any_model):
    before = {name: (weight.clone(), weight.stride()) for name, weight in any_model.state_dict().items()}
    copied = any_model.for_inference()
    outputs(copied)
    storages = [{one.untyped_storage().data_ptr() for one in model.parameters()} for model in (any_model, copied)]
    assert not storages[0] & storages[1]
    assert all(parameter.requires_grad for parameter in any_model.parameters())
    for name, weight in any_model.state_dict().items():
        assert torch.equal(weight, before[name][0]) and weight.stride() == before[name][1], name
    assert copied.state_dict().keys() == before.keys() and copied.num_parameters() == any_model.num_parameters()


def test_a_model_trains_the_same_after_it_was_searched_with_and_copied(any_model, any_table):
    expected = train_one_step(build(any_table))
    outputs(any_model)
    copied = any_model.for_inference()
    found = outputs(copied)
    assert train_one_step(any_model) == expected
    # The copy keeps the weights that it was made with.
    assert outputs(copied) == found


def test_a_training_loop_with_an_optimizer_of_pytorch_lowers_the_loss(family):
    model, batch = family, small_batch(family)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    first = model.eval()(batch).item()
    for step in range(20):
        model.train().noise.seed(0, step)
        optimizer.zero_grad()
        model(batch).backward()
        optimizer.step()
    assert model.eval()(batch).item() < 0.9 * first


def test_forward_hooks_are_called_with_the_batch_and_the_loss(family):
    seen = []
    handle = family.register_forward_hook(lambda module, inputs, loss: seen.append((inputs, loss)))
    batch = small_batch(family)
    loss = family(batch)
    handle.remove()
    family(batch)
    assert len(seen) == 1 and seen[0][0] == (batch,) and seen[0][1] is loss
