"""A Transformer of plain PyTorch in float64, without padding and without a cache, and the simplest beam search.

It is written without regard's layers, and reads tensors by the names that a toolkit gives them. Sources of one length are
computed together.
"""

import math
from functools import cache

import torch
import torch.nn.functional as F

ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu, "swish": F.silu}


class Reference:
    """`linear(module)` and `norm(module)` return weight and bias of a module by the toolkit's name."""

    def __init__(
        self,
        *,
        linear,
        norm,
        names,
        layers,
        heads,
        embeddings,
        output,
        positions,
        pre_norm,
        eps,
        activation,
        scale,
        start,
    ):
        self.linear, self.norm_of = (
            cache(lambda module: doubled(linear(module))),
            cache(lambda module: doubled(norm(module))),
        )
        self.names, self.layers, self.heads = names, layers, heads
        self.source_table, self.target_table = (one.double() for one in embeddings)
        self.output_weight, self.output_bias = output[0].double(), None if output[1] is None else output[1].double()
        self.positions, self.pre_norm, self.eps, self.scale = positions.double(), pre_norm, eps, scale
        self.activation, self.start = ACTIVATIONS[activation], start  # start: the first vector of an output

    def norm(self, module, x):
        weight, bias = self.norm_of(module)
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)

    def project(self, module, x):
        weight, bias = self.linear(module)
        return F.linear(x, weight, bias)

    def attend(self, modules, queries, keys, *, causal):
        q, k, v = (
            self.project(module, x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for module, x in zip(modules[:3], (queries, keys, keys), strict=True)
        )
        scores = q @ k.transpose(2, 3) / math.sqrt(q.size(-1))
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), float("-inf"))
        return self.project(modules[3], (scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def sublayer(self, norm, x, branch):
        if self.pre_norm:
            return x + branch(self.norm(norm, x))
        return self.norm(norm, x + branch(x))

    def layer(self, side, number, x, memory=None):
        names = self.names(side, number)
        causal = memory is not None
        x = self.sublayer(names["self norm"], x, lambda y: self.attend(names["self"], y, y, causal=causal))
        if memory is not None:
            x = self.sublayer(names["cross norm"], x, lambda y: self.attend(names["cross"], y, memory, causal=False))
        inner, outer = names["feed-forward"]
        return self.sublayer(
            names["feed-forward norm"], x, lambda y: self.project(outer, self.activation(self.project(inner, y)))
        )

    def embed(self, vectors):
        return vectors * self.scale + self.positions[: vectors.size(1)]

    def encode(self, sources):
        """The vectors of some sources of one length."""
        x = self.embed(self.source_table[torch.tensor(sources)])
        for number in range(self.layers[0]):
            x = self.layer("encoder", number, x)
        return self.norm(self.names("encoder", None)["top"], x) if self.pre_norm else x

    def logits(self, memory, prefixes):
        """The logits behind each token of some outputs of one length, which begin with the start: one per row of memory."""
        start = self.start.double().expand(len(prefixes), 1, -1)
        x = self.embed(torch.cat([start, self.target_table[prefixes]], dim=1))
        for number in range(self.layers[1]):
            x = self.layer("decoder", number, x, memory)
        if self.pre_norm:
            x = self.norm(self.names("decoder", None)["top"], x)
        found = x @ self.output_weight.t()
        return found if self.output_bias is None else found + self.output_bias

    def search(self, sources, **options):
        """The best output of each source."""
        found = {}
        for length in {len(source) for source in sources}:
            numbers = [number for number, source in enumerate(sources) if len(source) == length]
            outputs = self._search_equally_long([sources[number] for number in numbers], **options)
            found.update(zip(numbers, outputs, strict=True))
        return [found[number] for number in range(len(sources))]

    @torch.no_grad()
    def _search_equally_long(self, sources, *, beam, alpha, limit, eos, never):
        memory = self.encode(sources)
        beams = [Beam(number) for number in range(len(sources))]
        for length in range(1, limit + 1):
            searching = [one for one in beams if len(one.ended) < beam]
            if not searching:
                break
            places = [one.source for one in searching for _ in one.rows]
            prefixes = torch.tensor([ids for one in searching for ids, _ in one.rows], dtype=torch.long)
            logp = self.logits(memory[places], prefixes.view(len(places), -1))[:, -1].log_softmax(-1)
            logp[:, list(never)] = float("-inf")
            for one, rows in zip(searching, logp.split([len(one.rows) for one in searching]), strict=True):
                one.extend(rows, beam=beam, eos=eos, divisor=length**alpha)
        for one in beams:
            if len(one.ended) < beam:
                one.ended += [(score / limit**alpha, ids) for ids, score in one.rows]
        return [max(one.ended)[1] for one in beams]


class Beam:
    """The outputs of a source that search goes on with, and those that have ended."""

    def __init__(self, source):
        self.source, self.rows, self.ended = source, [([], 0.0)], []

    def extend(self, logp, *, beam, eos, divisor):
        """Two times `beam` candidates; those of the best `beam` that end are kept."""
        scores = torch.tensor([score for _, score in self.rows], dtype=torch.float64)[:, None] + logp
        best = scores.flatten().topk(2 * beam)
        found = [
            (score, [*self.rows[place // logp.size(1)][0], place % logp.size(1)])
            for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        self.ended += [(score / divisor, ids[:-1]) for score, ids in found[:beam] if ids[-1] == eos]
        self.rows = [(ids, score) for score, ids in found if ids[-1] != eos][:beam]


def doubled(pair):
    return [None if one is None else one.double() for one in pair]


def sinusoids(count, width, *, log, halves, first=0):
    """Positions by the formula as toolkits write it, in float64."""
    half = width // 2
    steps = [math.log(10000) * i / (half - 1) if log else math.log(10000) * 2 * i / width for i in range(half)]
    table = torch.zeros(count, width, dtype=torch.float64)
    for position in range(count):
        for i, step in enumerate(steps):
            angle = (position + first) * math.exp(-step)
            table[position, i if halves else 2 * i] = math.sin(angle)
            table[position, half + i if halves else 2 * i + 1] = math.cos(angle)
    return table
