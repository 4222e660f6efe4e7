"""A toy language: words a to j translate to A to J; the words of the domain, m to p, translate to Q to T there.

The base model has seen the words of the domain with other translations, M to P.
"""

import random

import regard

GENERAL = {word: word.upper() for word in "abcdefghij"}
BASE = {word: word.upper() for word in "mnop"}
DOMAIN = dict(zip("mnop", "QRST", strict=True))

RECIPE = """
[data]
train = { pairs = "train.tsv" }
valid = { pairs = "valid.tsv" }
test = { test = { pairs = "test.tsv" } }
[tokenizer]
kind = "word"
size = 100
[model]
kind = "transformer"
width = 32
num_layers = 1
num_heads = 2
hidden = 64
dropout = 0.0
norm_order = "pre"
[train]
steps = 220
tokens = 1024
schedule = "wsd"
lr = 1e-2
warmup_steps = 10
label_smoothing = 0.0
clip_norm = 1.0
validate_pairs = 1
checkpoint_every = 300
log_every = 100
threads = 1
device = "cpu"
[decode]
beam = 1
[evaluate]
bleu_tokenize = "none"
"""


def sentences(words, count, *, seed, longest=7):
    """Return pairs of distinct sources of words that the dictionary translates."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        line = draw.choices(list(words), k=draw.randint(4, longest))
        found[" ".join(line)] = " ".join(words[word] for word in line)
    return list(found.items())


def write_pairs(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return path


def train_base(folder):
    """Train the base model in a few seconds; return the run folder. Its data is next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    also = [(one, " ".join(DOMAIN[word.lower()] for word in two.split())) for one, two in sentences(BASE, 8, seed=9)]
    train = sentences(GENERAL, 600, seed=1) + sentences({**GENERAL, **BASE}, 600, seed=2) + also
    write_pairs(folder / "train.tsv", train)
    write_pairs(folder / "valid.tsv", sentences(GENERAL, 50, seed=3))
    write_pairs(folder / "test.tsv", sentences(GENERAL, 100, seed=4))
    (folder / "toy.toml").write_text(RECIPE)
    regard.train(str(folder / "toy.toml"), out=folder / "base", data=folder, listen=lambda event: None)
    return folder / "base"


def domain_pairs(count=120, *, seed=5):
    """Return pairs of the domain."""
    return sentences({**{word: GENERAL[word] for word in "abc"}, **DOMAIN}, count, seed=seed)
