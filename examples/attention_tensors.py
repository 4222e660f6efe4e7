"""Attention and token probabilities as tensors, from the pretrained model `en-de`.

What you learn: two ways to read what a model does. `regard.look` translates a sentence and returns a `Trace` with NumPy
arrays, labelled with tokens. `regard.nn.capture_attention` records the weights of every attention module of any model while
it runs, which is the way for models and batches of your own.

    python examples/attention_tensors.py
"""

from __future__ import annotations

import torch

import regard
from regard.nn import capture_attention

SENTENCE = "The dog is tired."


def main() -> None:
    trace = regard.look("en-de", SENTENCE, alternatives=2, device="cpu")
    print(trace.target.text)
    for token, probability, others in zip(trace.target.tokens, trace.probabilities, trace.alternatives, strict=True):
        print(f"  {token:12} {probability:.2f}   instead: {', '.join(other.token for other in others)}")

    # One `Attention` per layer: weights of [heads, queries, keys], between two named axes.
    last = trace.layers("encoder-decoder")[-1]
    queries, keys = trace.axes_of(last)
    mean = last.weights.mean(axis=0)
    for token, row in zip(queries.tokens, mean, strict=True):
        print(f"  {token:12} attends most to {keys.tokens[row.argmax()]}")

    # The same from the plain module, for a batch of your own.
    translator = regard.load("en-de", device="cpu")
    assert isinstance(translator, regard.Translator)
    model, tokenizer = regard.load_model("en-de", device="cpu"), translator.tokenizers.source
    batch = regard.make_batch([tokenizer.encode(SENTENCE)], [trace.target.ids[:-1]])
    assert isinstance(model, regard.Transformer) and batch.target is not None
    with torch.no_grad(), capture_attention() as log:
        logits = model.decode(batch.target, model.encode(batch.source))
    # Each module has a list of calls; each call has one tensor [heads, queries, keys] per sentence.
    weights = [calls[0][0] for calls in log.calls.values()]
    print(f"{len(weights)} attention modules, the first with weights of shape {list(weights[0].shape)}")
    difference = (weights[-1] - torch.from_numpy(last.weights)).abs().max().item()
    print(f"largest difference between the two ways: {difference:.1e}")
    probabilities = logits.softmax(dim=-1).gather(1, batch.labels.values[:, None])[:, 0]
    print("probabilities:", " ".join(f"{one:.2f}" for one in probabilities.tolist()))


if __name__ == "__main__":
    main()
