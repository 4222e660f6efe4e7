"""Greedy and beam search on the device alone: the host launches steps, and reads how many sentences are not finished.

For the options that most searches have: no constraints, samples, groups, or rules about repetition. The results are those
of `decoding.beam_search` and `decoding.row_search`. On a GPU a step is a CUDA graph: the decoder (`nn.decoder_pool`), the
choice of candidates, and what becomes of finished hypotheses (`kernels.beam_step`). Without a GPU the same runs step by
step, slowly, for tests.

All tensors belong to a `SearchTensors`, which one search at a time can use. They hold for each place, that is for each
sentence of the batch:

    tokens, logp        last token and log-probability of each beam, [P, Q]
    active              whether the sentence is not finished, [P]
    remaining           how many are not, after each of the last steps
    counts              hypotheses that have ended, [P]
    ended_...           the Q best of these, best first: score, log-probability, last step, parent's beam, last token, [P, Q]
    history_...         token, parent's beam and log-probability at each step, [P, Q, T]

Shapes: P places, B groups of rows in use, Q beams, R = B * Q rows, T steps that there is room for, V vocabulary,
        C candidates per sentence, N source tokens.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged, StaticLayout
from regard.decoding.batch_search import output_limits
from regard.decoding.constraints import Demands
from regard.decoding.hypothesis import IMPOSSIBLE, Check, Hypothesis, SearchResults, length_penalty
from regard.decoding.ranking import top_k
from regard.decoding.repetition import forbids_repetition
from regard.models.base import StaticSeq2Seq
from regard.nn.decoder_pool import DecoderPool, Number, copy_steps

FIRST_STEPS = 256  # most steps that a search has room for at first; doubled when they are used up
STEP_MULTIPLE = 32
MAX_POSITIONS = 1024  # that there is room for at first
MAX_BEAMS = 16  # with more, the kernel would need too much memory for a sentence's candidates
AHEAD = 3  # steps that the host launches before it has read how many sentences remain
SMALLER = 0.5  # sentences continue in a graph for fewer rows once it has at most this share of the rows
DOUBLED = 2**16  # room for at most this much is rounded up to a power of two
MAX_KINDS = 2  # beam sizes whose tensors are kept
MAX_GRAPHS = 64  # that are kept; the least recently used is dropped first
EARLY = {False: 0, True: 1, "never": 2}


def fits(options: SearchOptions, demands: Demands | None) -> bool:
    """Return whether this search supports the options and what the outputs must have."""
    free = demands is None or (demands.vocabularies is None and not any(demands.automata))
    plain = not options.sample and options.beam_groups == 1 and not forbids_repetition(options)
    return free and plain and options.beam <= MAX_BEAMS


def round_up(count: int) -> int:
    """Return a number that is at most a quarter larger, so that few graphs serve all batches."""
    multiple = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // multiple) * multiple


class DeviceSearch:
    """Searches of one model, one at a time."""

    def __init__(self, model: StaticSeq2Seq[Any, Any]) -> None:
        self.model = model
        self.by_beams: OrderedDict[int, SearchTensors] = OrderedDict()
        self.graphs: OrderedDict[tuple[str, int, int], torch.cuda.CUDAGraph] = OrderedDict()
        self.memory_pool: Any = None  # of the tensors inside graphs: only one graph runs at a time

    def launch(
        self, source: Ragged, *, options: SearchOptions, demands: Demands | None, check: Check
    ) -> Callable[[], SearchResults]:
        """Search, and return a function that returns the best hypotheses of all sentences, as soon as they have arrived.

        `check` is called before every step. The next search can begin before the function is called.
        """
        limits = output_limits(source.layout.lengths, options, demands, self.model.max_length)
        never = self.model.never if demands is None else (*self.model.never, *demands.never)
        check()
        search = self._tensors(source, limits, options)
        search.load(source, limits, options, never)
        self._encode(search, source)
        groups = round_up(len(limits))
        for step in range(max(limits)):
            check()
            if step == search.pool.steps:
                search = self._with_more_steps(search, len(limits))
            remaining = search.remaining()
            if remaining == 0:
                break
            # Powers of two, so that few graphs are recorded for this.
            if remaining is not None and (fewer := 1 << (remaining - 1).bit_length()) <= SMALLER * groups:
                groups = fewer
                search.drop_finished()
            self._replay("step", search, groups, search.step)
            search.count_step()
        return search.fetch(len(limits), options)

    def _tensors(self, source: Ragged, limits: Sequence[int], options: SearchOptions) -> SearchTensors:
        """Return tensors with enough room, those of earlier searches if possible."""
        beams, longest, sentences = options.beam, max(limits), round_up(len(limits))
        steps = min(-(-longest // STEP_MULTIPLE) * STEP_MULTIPLE, FIRST_STEPS)
        wanted = Room.for_search(sentences, sentences * beams * steps, round_up(source.layout.total))
        found = self.by_beams.get(beams)
        if found is None or not found.room.holds(wanted) or longest > found.max_positions:
            most = max(MAX_POSITIONS, longest)
            if found is not None:
                wanted, most = wanted.with_room_for(found.room), max(most, found.max_positions)
            self._drop(beams)
            del found
            found = SearchTensors(self.model, wanted, beams=beams, max_positions=most)
            self.by_beams[beams] = found
            if len(self.by_beams) > MAX_KINDS:
                self._drop(next(iter(self.by_beams)))
        self.by_beams.move_to_end(beams)
        found.pool.steps = steps
        return found

    def _drop(self, beams: int) -> None:
        """Drop the tensors for so many beams, and the graphs that use them."""
        self.by_beams.pop(beams, None)
        for key in [key for key in self.graphs if key[1] == beams]:
            del self.graphs[key]
        if not self.graphs:
            self.memory_pool = None  # it is gone with its last graph

    def _with_more_steps(self, search: SearchTensors, sentences: int) -> SearchTensors:
        """Return tensors with room for twice as many steps, in which the search continues."""
        steps = 2 * search.pool.steps
        room = search.room._replace(slots=max(search.room.slots, round_up(sentences) * search.beams * steps))
        self._drop(search.beams)
        larger = SearchTensors(self.model, room, beams=search.beams, max_positions=search.max_positions)
        larger.take_over(search, steps)
        self.by_beams[search.beams] = larger
        return larger

    def _encode(self, search: SearchTensors, source: Ragged) -> None:
        """Compute the keys and values of the source."""
        half = search.pool.shape.dtype in (torch.bfloat16, torch.float16)
        if self.model.static_shapes and half and kernels.usable(search.pool.memory):
            self._replay("encode", search, round_up(source.layout.total), search.encode_static)
        else:
            search.encode(source)

    def _replay(self, name: str, search: SearchTensors, size: int, run: Any) -> None:
        """Replay what `run(size)` does, or run it where there are no graphs."""
        if search.device.type != "cuda":
            run(size)
            return
        key = (name, search.beams, size)
        if key not in self.graphs:
            self.graphs[key] = self._record(search, size, run)
            if len(self.graphs) > MAX_GRAPHS:
                self.graphs.popitem(last=False)
        self.graphs.move_to_end(key)
        self.graphs[key].replay()

    def _record(self, search: SearchTensors, size: int, run: Any) -> torch.cuda.CUDAGraph:
        """Return the graph of `run(size)`. It runs once before, so that libraries initialize themselves."""
        saved = [one.clone() for one in search.changing]
        run(size)
        for one, before in zip(search.changing, saved, strict=True):
            one.copy_(before)
        if self.memory_pool is None:
            self.memory_pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.memory_pool, capture_error_mode="thread_local"):
            run(size)
        return graph


class Room(NamedTuple):
    """What tensors have room for. It is rounded up, so that most later searches fit too."""

    sentences: int
    slots: int  # of one row and one step each
    tokens: int  # of the sources

    @classmethod
    def for_search(cls, sentences: int, slots: int, tokens: int) -> Room:
        return cls(*(max(least, _coarse(n)) for n, least in zip((sentences, slots, tokens), LEAST, strict=True)))

    def holds(self, other: Room) -> bool:
        return all(have >= wanted for have, wanted in zip(self, other, strict=True))

    def with_room_for(self, other: Room) -> Room:
        return Room(*(max(pair) for pair in zip(self, other, strict=True)))


LEAST = Room(sentences=16, slots=4096, tokens=512)


def _coarse(count: int) -> int:
    return 1 << (count - 1).bit_length() if count <= DOUBLED else round_up(count)


class SearchTensors:
    """All tensors of searches with so many beams, and one step of such a search."""

    def __init__(self, model: StaticSeq2Seq[Any, Any], room: Room, *, beams: int, max_positions: int) -> None:
        self.model, self.room, self.beams, self.max_positions = model, room, beams, max_positions
        self.pool = DecoderPool(model.decoder_shape(), beams=beams, **room._asdict())
        self.device = device = self.pool.shape.device
        assert model.output_weight is not None
        P, rows = room.sentences, room.sentences * beams

        def integers(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int32, device=device)

        # What the host gives a search, in one row: numbers, limits, offsets, positions and sentences of the source tokens.
        widths = [len(Number), P, P + 2, room.tokens, room.tokens]
        self.given = integers(sum(widths))
        self.given_by_host = torch.zeros(sum(widths), dtype=torch.int32, pin_memory=device.type == "cuda")
        self.host_parts = [part.numpy() for part in self.given_by_host.split(widths)]
        numbers, limits, offsets, self.positions, self.sentences = self.given.split(widths)
        self.pool.numbers, self.pool.offsets = numbers, offsets
        self.ids = torch.zeros(room.tokens, dtype=torch.int64, device=device)
        self.changing_by_name = {
            "numbers": numbers,
            "places": self.pool.places,
            "ancestors": self.pool.ancestors,
            "tokens": integers(rows),
            "logp": torch.zeros(rows, device=device),
            "active": integers(P),
            "counts": integers(P),
            "remaining": integers(AHEAD + 1),
            "ended_scores": torch.zeros(rows, dtype=torch.float64, device=device),
            "ended_logp": torch.zeros(rows, device=device),
            "ended_steps": integers(rows),
            "ended_beams": integers(rows),
            "ended_tokens": integers(rows),
            "history_tokens": integers(room.slots),
            "history_parents": integers(room.slots),
            "history_logp": torch.zeros(room.slots, device=device),
        }
        self.by_name = self.changing_by_name | {
            "limits": limits,
            "banned": torch.zeros(model.output_weight.size(0), dtype=torch.uint8, device=device),
            "penalties": torch.ones(max_positions + 1, dtype=torch.float64, device=device),
        }
        self.never: tuple[int, ...] = ()
        self.penalty: tuple[object, ...] | None = None  # the options that the penalties are of
        self.remaining_on_host = torch.zeros(AHEAD + 1, dtype=torch.int32, pin_memory=device.type == "cuda")
        self.events = [torch.cuda.Event() for _ in range(AHEAD + 1)] if device.type == "cuda" else []
        self.steps_taken = 0

    @property
    def changing(self) -> list[Tensor]:
        """What a step changes, keys and values excepted."""
        return list(self.changing_by_name.values())

    # The beginning of a search

    def load(self, source: Ragged, limits: Sequence[int], options: SearchOptions, never: Sequence[int]) -> None:
        """Take in the source and the options of a search."""
        numbers, host_limits, offsets, positions, sentences = self.host_parts
        B, N, lengths = len(limits), source.layout.total, np.array(source.layout.lengths)
        greedy = options.beam == 1
        numbers[Number.POSITION], numbers[Number.STEPS] = 0, self.pool.steps
        numbers[Number.MIN_LENGTH] = min(options.min_length, 2**31 - 1)
        numbers[Number.EARLY_STOPPING] = EARLY[True] if greedy else EARLY[options.early_stopping]
        numbers[Number.NBEST] = options.nbest
        host_limits[:B], host_limits[B:] = limits, 0
        # Tokens up to the rounded number belong to one more sentence.
        offsets[0], offsets[1 : B + 1], offsets[B + 1 :] = 0, lengths.cumsum(), round_up(N)
        positions[:N] = np.arange(N) - (lengths.cumsum() - lengths).repeat(lengths)
        sentences[:N] = np.arange(B).repeat(lengths)
        positions[N : round_up(N)], sentences[N : round_up(N)] = 0, B
        self.given.copy_(self.given_by_host, non_blocking=True)
        self.ids[:N] = source.values
        self.pool.longest, self.steps_taken = source.layout.longest, 0
        if self.never != (never := tuple(never)):
            columns = torch.tensor(never, dtype=torch.int64).to(self.device)
            self.by_name["banned"].zero_().index_fill_(0, columns, 1)
            self.never = never
        if self.penalty != (penalty := (options.length_penalty, options.length_penalty_kind)):
            table = [1.0, *(length_penalty(length, options) for length in range(1, self.max_positions + 1))]
            self.by_name["penalties"].copy_(torch.tensor(table, dtype=torch.float64))
            self.penalty = penalty

    def reset(self) -> None:
        """Start over: one beam per sentence, and nothing found."""
        tensors = self.by_name
        tensors["tokens"].fill_(self.model.bos)
        tensors["logp"].fill_(IMPOSSIBLE).view(-1, self.beams)[:, 0] = 0.0
        tensors["active"].copy_(tensors["limits"] > 0)
        tensors["counts"].zero_()
        tensors["ended_scores"].fill_(IMPOSSIBLE)
        torch.arange(self.room.sentences, out=self.pool.places)

    def encode_static(self, tokens: int) -> None:
        """Start over, and compute the keys and values of so many source tokens, without a look at their lengths."""
        self.reset()
        layout = StaticLayout(
            self.positions[:tokens], self.sentences[:tokens], self.pool.offsets, longest=MAX_POSITIONS
        )
        self.model.write_memory(self.model.encode(Ragged(self.ids[:tokens], layout)).values, self.pool)

    def encode(self, source: Ragged) -> None:
        """Do the same for a model whose encoder needs to know the lengths, and may leave out tokens."""
        self.reset()
        memory = self.model.encode(source)
        ends = torch.tensor((0, *memory.layout.lengths), dtype=torch.int32).cumsum(0, dtype=torch.int32)
        self.pool.offsets[: len(ends)] = ends.to(self.device)
        self.pool.offsets[len(ends) :] = memory.layout.total
        self.model.write_memory(memory.values, self.pool)

    def take_over(self, other: SearchTensors, steps: int) -> None:
        """Continue a search with room for so many steps."""
        for name, old in other.by_name.items():
            if not name.startswith(("history", "ancestors")):
                self.by_name[name].copy_(old)
        for name in ("history_tokens", "history_parents", "history_logp"):
            copy_steps(self.by_name[name], other.by_name[name], self.beams, other.pool.steps, steps)
        self.given.copy_(other.given)
        self.pool.take_over(other.pool, steps)
        self.never, self.penalty, self.steps_taken = other.never, other.penalty, other.steps_taken
        self.remaining_on_host.copy_(other.remaining_on_host)
        self.events = other.events

    # A step

    def step(self, groups: int) -> None:
        """Give every beam of these groups its next token."""
        rows_BQ = self.by_name["tokens"].view(-1, self.beams).index_select(0, self.pool.places[:groups])
        most = self.max_positions if self.model.max_length is None else min(self.max_positions, self.model.max_length)
        logits_RV = self.model.step_in_pool(rows_BQ.flatten(), self.pool, num_positions=most)
        if kernels.usable(logits_RV):
            from regard.kernels.beam_step import advance

            advance(logits_RV, self.by_name, eos=self.model.eos, beams=self.beams)
        else:
            advance_plain(logits_RV, self.by_name, eos=self.model.eos, beams=self.beams, steps=self.pool.steps)
        self.remaining_on_host.copy_(self.by_name["remaining"], non_blocking=True)

    def count_step(self) -> None:
        """Note that the host has launched a step."""
        if self.events:
            self.events[self.steps_taken % len(self.events)].record()
        self.steps_taken += 1

    def remaining(self) -> int | None:
        """Return how many sentences were not finished `AHEAD` steps ago, or now if there are no graphs; None: not known yet.

        Not a newer number, where there is one: results must not depend on time, and a smaller graph may round another way.
        """
        known = self.steps_taken - (AHEAD if self.events else 1)
        if known < 0:
            return None
        if self.events:
            self.events[known % len(self.events)].synchronize()
        return int(self.remaining_on_host[known % len(self.remaining_on_host)])

    def drop_finished(self) -> None:
        """Let the first groups be those of the sentences that are not finished."""
        order = self.by_name["active"].argsort(descending=True, stable=True)
        self.pool.places.copy_(order)

    # The end of a search

    def fetch(self, sentences: int, options: SearchOptions) -> Callable[[], SearchResults]:
        """Begin to copy the results to the host. Return a function that waits for them and returns them."""
        Q, T, used = self.beams, self.pool.steps, self.steps_taken
        wanted = ["history_tokens"]
        wanted += ["history_parents"] if Q > 1 else []
        wanted += ["history_logp"] if options.token_scores else []
        parts = [self.by_name[name][: sentences * Q] for name in ENDED]
        parts.append(self.by_name["counts"][:sentences])
        parts += [self.by_name[name][: sentences * Q * T].view(-1, T)[:, :used].flatten() for name in wanted]
        # One copy, of numbers of all kinds as integers.
        packed = torch.cat([part.view(torch.int32) for part in parts])
        sizes = np.cumsum([part.numel() * part.element_size() // 4 for part in parts])
        on_host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=self.device.type == "cuda")
        on_host.copy_(packed, non_blocking=True)
        arrived = torch.cuda.Event() if self.device.type == "cuda" else None
        if arrived is not None:
            arrived.record()
        eos = self.model.eos

        def results() -> SearchResults:
            if arrived is not None:
                arrived.synchronize()
            parts = np.split(on_host.numpy(), sizes[:-1])
            return _ended(parts, Q, options.nbest).hypotheses(
                {name: one.reshape(-1, Q, used) for name, one in zip(wanted, parts[6:], strict=True)}, options, eos
            )

        return results


def _ended(parts: list[NDArray[np.int32]], Q: int, nbest: int) -> Ended:
    """Return the hypotheses among the parts of the results."""
    scores, logp, steps, beams, last, counts = parts[:6]
    return Ended(
        scores.view(np.float64).reshape(-1, Q), logp.view(np.float32).reshape(-1, Q), steps.reshape(-1, Q),
        beams.reshape(-1, Q), last.reshape(-1, Q), np.minimum(counts, nbest),
    )  # fmt: skip


ENDED = ("ended_scores", "ended_logp", "ended_steps", "ended_beams", "ended_tokens")


class Ended(NamedTuple):
    """The best hypotheses of each sentence, on the host: [B, Q], and how many of them are wanted, [B]."""

    scores: NDArray[np.float64]
    logp: NDArray[np.float32]
    steps: NDArray[np.int32]
    beams: NDArray[np.int32]
    last: NDArray[np.int32]
    counts: NDArray[np.int32]

    def hypotheses(self, history: dict[str, NDArray[np.int32]], options: SearchOptions, eos: int) -> SearchResults:
        """Return them with their tokens, which lie along a path through the history, [B, Q, steps] each."""
        tokens, parents = history["history_tokens"], history.get("history_parents")
        ranks = np.arange(self.scores.shape[1])
        sentence, rank = np.nonzero(ranks < self.counts[:, None])
        steps, beam = self.steps[sentence, rank], self.beams[sentence, rank]
        ids = np.zeros((len(sentence), tokens.shape[2]), dtype=np.int32)
        sums = np.zeros(ids.shape, dtype=np.float32)
        logp = history["history_logp"].view(np.float32) if options.token_scores else None
        if parents is None:
            ids = tokens[sentence, 0]
            sums = sums if logp is None else logp[sentence, 0]
        else:
            for step in range(steps.max(initial=0) - 1, -1, -1):
                there = step < steps
                ids[:, step] = tokens[sentence, beam, step]
                if logp is not None:
                    sums[:, step] = logp[sentence, beam, step]
                beam = np.where(there, parents[sentence, beam, step], beam)
        found: SearchResults = [(number, []) for number in range(len(self.counts))]
        scored = options.scores or options.beam > 1
        lists = zip(
            sentence.tolist(), ids.tolist(), steps.tolist(), self.last[sentence, rank].tolist(),
            self.scores[sentence, rank].tolist(), strict=True,
        )  # fmt: skip
        for place, (number, path, length, token, score) in enumerate(lists):
            output = path[:length] if token == eos else [*path[:length], token]
            token_scores = None
            if logp is not None:
                last = float(self.logp[number, rank[place]])
                token_scores = np.diff([0.0, *sums[place, :length].tolist(), last]).tolist()
            found[number][1].append(Hypothesis(output, score if scored else 0.0, token_scores))
        return found


def advance_plain(logits_RV: Tensor, search: dict[str, Tensor], *, eos: int, beams: int, steps: int) -> None:
    """Do what `kernels.beam_step.advance` does, in PyTorch."""
    if bool(search["active"][search["places"][: len(logits_RV) // beams].long()].any()):
        _advance_active(logits_RV, search, eos=eos, beams=beams, steps=steps)
    position = int(search["numbers"][Number.POSITION])
    search["remaining"][position % search["remaining"].numel()] = search["active"].sum()
    search["numbers"][Number.POSITION] += 1


def _advance_active(logits_RV: Tensor, search: dict[str, Tensor], *, eos: int, beams: int, steps: int) -> None:
    Q, C, V = beams, 1 if beams == 1 else 2 * beams, logits_RV.size(1)
    position, _, min_length, early, nbest = search["numbers"].tolist()
    places = search["places"][: len(logits_RV) // Q].long()
    active = search["active"].view(-1)[places] > 0
    places, rows_BQ = places[active], torch.arange(len(logits_RV), device=places.device).view(-1, Q)[active]
    logits_RV = logits_RV[rows_BQ.flatten()].float()
    B = len(places)

    # The best C candidates
    logp_PQ, more_R1 = search["logp"].view(-1, Q), -logits_RV.logsumexp(dim=-1, keepdim=True)
    more_R1 = logp_PQ[places].view(-1, 1) + more_R1
    logits_RV = logits_RV.masked_fill(search["banned"].bool(), IMPOSSIBLE)
    if position < min_length:
        logits_RV[:, eos] = IMPOSSIBLE
    each = min(C, V)
    best_RC, tokens_RC = top_k(logits_RV, each)
    score, at = (best_RC + more_R1).view(B, -1).topk(min(C, Q * each), dim=-1)
    token, parent = tokens_RC.view(B, -1).gather(1, at), at // each
    missing = C - score.size(1)
    score = torch.nn.functional.pad(score, (0, missing), value=IMPOSSIBLE)
    token, parent = (torch.nn.functional.pad(one, (0, missing)) for one in (token, parent))
    possible = score > IMPOSSIBLE
    token = token.masked_fill(~possible, eos)

    # Those that end
    length, limit_B, count_B = position + 1, search["limits"][places].long(), search["counts"][places]
    at_end_B, column = length >= limit_B, torch.arange(C, device=places.device)
    is_eos = token == eos
    ends, is_open = possible & is_eos & (column < Q), possible & ~is_eos
    count_B = count_B + ends.sum(dim=1)
    open_before = is_open.cumsum(dim=1) - is_open.long()
    room = open_before < (Q - count_B)[:, None] if early == 1 else column < Q
    cut = is_open & room & at_end_B[:, None]
    count_B = count_B + cut.sum(dim=1)
    penalties = search["penalties"]
    # Those that ended by themselves come first, then those that are cut, each in their order.
    new = torch.cat([ends, cut], dim=1)
    new_score = (score.double() / penalties[length]).repeat(1, 2).masked_fill(~new, IMPOSSIBLE)
    added = {
        "ended_scores": new_score,
        "ended_logp": score.repeat(1, 2),
        "ended_steps": torch.full_like(new_score, position, dtype=torch.int32),
        "ended_beams": parent.repeat(1, 2).int(),
        "ended_tokens": token.repeat(1, 2).int(),
    }
    both = {name: torch.cat([search[name].view(-1, Q)[places], one], dim=1) for name, one in added.items()}
    order = both["ended_scores"].argsort(dim=1, descending=True, stable=True)[:, :Q]
    for name, one in both.items():
        search[name].view(-1, Q)[places] = one.gather(1, order)
    search["counts"][places] = count_B.int()

    # Whether the sentence is finished
    sorted_BQ = search["ended_scores"].view(-1, Q)[places]
    best_open = score.masked_fill(~is_open, IMPOSSIBLE).amax(dim=1)
    open_now, open_later = best_open.double() / penalties[length], best_open.double() / penalties[limit_B]
    enough = count_B >= Q
    no_better = open_later <= sorted_BQ[:, nbest - 1]
    if early == 0:
        no_better |= enough & (open_now <= sorted_BQ[:, Q - 1])
    done = torch.where(count_B < nbest, best_open == IMPOSSIBLE, no_better)
    if early == 1:
        done |= enough
    search["active"][places] = (~(at_end_B | done)).int()

    # The next tokens: of the best Q candidates that do not end
    order = is_eos.int().argsort(dim=1, stable=True)[:, :Q]
    token, parent, score, is_eos = (one.gather(1, order) for one in (token, parent, score, is_eos))
    search["tokens"].view(-1, Q)[places] = token.int()
    logp_PQ[places] = score.masked_fill(is_eos, IMPOSSIBLE)
    for name, one in {"tokens": token.int(), "parents": parent.int(), "logp": score}.items():
        _by_place(search[f"history_{name}"], Q, steps)[places, :, position] = one
    ancestors_PQT = _by_place(search["ancestors"], Q, steps)
    before = ancestors_PQT[places]
    ancestors_PQT[places] = before.gather(1, parent[:, :, None].expand(-1, -1, steps))
    ancestors_PQT[places, :, position] = parent.int()


def _by_place(x: Tensor, beams: int, steps: int) -> Tensor:
    """Return a view of the slots as [P, Q, T]."""
    return x[: x.numel() // (beams * steps) * beams * steps].view(-1, beams, steps)
