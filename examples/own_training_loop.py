"""A training loop of your own: regard's model and data, PyTorch's optimizer and scheduler.

What you learn: how to train a model without `regard.train`. Tokenizers turn text into columns of ids, a `Loader` cuts
them into batches of similar length, and the loop is the usual one. The trained model then translates text.

    python examples/own_training_loop.py        learns to reverse short words, in seconds
"""

from __future__ import annotations

import random
from itertools import islice

import torch

import regard

STEPS = 200


def make_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    """Return words of letters, and the same words reversed."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(3, 5))) for _ in range(count)]
    return [(word, word[::-1]) for word in words]


def main() -> float:
    torch.manual_seed(1)
    pairs = make_pairs(4000, seed=1)
    tokenizers = regard.train_tokenizers(pairs, kind="char", size=50, joint=True, coverage=1.0)
    source = regard.Column.from_lists(tokenizers.source.encode_all([one for one, _ in pairs]))
    target = regard.Column.from_lists(tokenizers.target.encode_all([other for _, other in pairs]))
    columns = regard.pair_columns(source, target)
    # EOS is added to each source and each target.
    loader = regard.Loader(lambda epoch: columns, regard.collate_pairs, added=(1, 1), budget=300, max_length=20, seed=1)

    size = tokenizers.source.size
    model = regard.Transformer(
        source_size=size,
        target_size=size,
        width=48,
        num_layers=2,
        num_heads=4,
        hidden=96,
        dropout=0.0,
        norm_order="pre",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=STEPS)
    model.train()
    for step, (batch, _) in enumerate(islice(loader.batches(regard.Position()), STEPS), start=1):
        loss = model(batch) / batch.num_tokens
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(f"step {step}  loss {loss.item():.3f}")

    # `for_inference` copies the model into the layout that search multiplies fastest; the original can train on.
    translator = regard.Translator(model.for_inference(), tokenizers, regard.SearchOptions(beam=1))
    print("abcde ->", translator.translate(["abcde"])[0])
    test = make_pairs(200, seed=2)
    outputs = translator.translate([word for word, _ in test])
    right = 100 * sum(output == reversed_ for output, (_, reversed_) in zip(outputs, test, strict=True)) / len(test)
    print(f"{right:.1f} % of new words are reversed correctly")
    return right


if __name__ == "__main__":
    main()
