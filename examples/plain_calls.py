"""The paper's Transformer in plain calls: build it, compute a loss, and search for outputs.

What you learn: a model is an ordinary `torch.nn.Module`. `model(batch)` returns the summed loss, `model.decode` returns the
logits of every position, and `regard.search` finds outputs. Nothing here reads or writes a file.

    python examples/plain_calls.py
"""

from __future__ import annotations

import math

import torch

import regard


def main() -> None:
    torch.manual_seed(1)
    # The base model of the paper has width=512, num_layers=6, num_heads=8 and hidden=2048, which are the defaults.
    size = 100  # of the vocabulary; ids 0, 1 and 2 are UNK, BOS and EOS
    model = regard.Transformer(source_size=size, target_size=size, width=64, num_layers=2, num_heads=4, hidden=128)
    print(f"{model.num_parameters():,} parameters")

    # A batch holds sequences of different lengths end to end, without padding. `make_batch` adds BOS and EOS.
    batch = regard.make_batch(source=[[11, 12, 13], [14, 15]], target=[[21, 22], [23, 24, 25]])
    assert batch.target is not None
    print("lengths:", batch.source.layout.lengths, batch.target.layout.lengths)

    # Training mode has dropout; its seed belongs to the model, so that a step can be repeated.
    model.train()
    model.noise.seed(1, 0)
    loss = model(batch, smoothing=0.1) / batch.num_tokens
    loss.backward()
    print(f"loss per token: {loss.item():.2f} (a uniform guess costs {math.log(size):.2f})")

    model.eval()
    with torch.no_grad():
        memory = model.encode(batch.source)
        logits = model.decode(batch.target, memory)
    print("logits:", list(logits.shape), "for", batch.num_tokens, "target tokens")

    # Search reads the source once and extends each output token by token.
    options = regard.SearchOptions(beam=4, nbest=2, max_length=5)
    for number, hypotheses in enumerate(regard.search(model, batch.source, options=options)):
        for hypothesis in hypotheses:
            print(f"sentence {number}: {hypothesis.ids} with score {hypothesis.score:.2f}")


if __name__ == "__main__":
    main()
