"""The tensors of searches on the device (`decoding.device_search`), which one search at a time can use.

They keep their addresses, so that CUDA graphs can be recorded with them. They hold for each place, that is for each
sentence of the batch:

    tokens, logp        last token and log-probability of each beam, [P, Q]
    active              whether the sentence is not finished, [P]
    remaining           how many are not, after each of the last steps
    counts              hypotheses that have ended, [P]
    ended_...           the Q best of these, best first: score, log-probability, last step, parent's beam, last token, [P, Q]
    history_...         token, parent's beam and log-probability at each step, [P, Q, T]

Shapes: P places, B groups of rows in use, Q beams, R = B * Q rows, T steps that there is room for, V vocabulary,
        N source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard import kernels
from regard.config import SearchOptions
from regard.data.ragged import Ragged, StaticLayout
from regard.decoding.ended_hypotheses import ENDED, Ended
from regard.decoding.hypothesis import IMPOSSIBLE, SearchResults, length_penalty
from regard.decoding.plain_beam_step import advance_plain
from regard.models.base import StaticSeq2Seq
from regard.nn.decoder_pool import DecoderPool, Number, copy_steps

MAX_POSITIONS = 1024  # that there is room for at first
AHEAD = 3  # steps that the host launches before it has read how many sentences remain
DOUBLED = 2**16  # room for at most this much is rounded up to a power of two
EARLY = {False: 0, True: 1, "never": 2}


def round_up(count: int) -> int:
    """Return a number that is at most a quarter larger, so that few graphs serve all batches."""
    multiple = 1 << max(0, (count - 1).bit_length() - 3)
    return -(-count // multiple) * multiple


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
        known = max(MAX_POSITIONS, max_positions) if model.max_length is None else model.max_length
        # Positions that recorded steps and the recorded encoder may read.
        self.target_positions, self.source_positions = min(max_positions, known), min(MAX_POSITIONS, known)
        P, rows = room.sentences, room.sentences * beams

        def integers(count: int) -> Tensor:
            return torch.zeros(count, dtype=torch.int32, device=device)

        # What the host gives a search, in one row: numbers, limits, offsets, positions and sentences of the source tokens.
        widths = [len(Number), P, P + 2, room.tokens, room.tokens]
        self.given = integers(sum(widths))
        self.given_by_host = torch.zeros(sum(widths), dtype=torch.int32, pin_memory=device.type == "cuda")
        self.loaded = torch.cuda.Event() if device.type == "cuda" else None  # the copy of it has ended
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
        if self.loaded is not None:
            self.loaded.synchronize()
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
        if self.loaded is not None:
            self.loaded.record()
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
            self.positions[:tokens], self.sentences[:tokens], self.pool.offsets, longest=self.source_positions
        )
        self.model.write_memory(self.model.encode(Ragged(self.ids[:tokens], layout)).values, self.pool)

    def encode(self, source: Ragged) -> None:
        """Do the same for longer sources, or a model whose encoder needs to know the lengths and may leave out tokens."""
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
        # Not copies: the last steps may still be running, and write to these.
        self.remaining_on_host, self.events = other.remaining_on_host, other.events

    # A step

    def step(self, groups: int) -> None:
        """Give every beam of these groups its next token."""
        rows_BQ = self.by_name["tokens"].view(-1, self.beams).index_select(0, self.pool.places[:groups])
        logits_RV = self.model.step_in_pool(rows_BQ.flatten(), self.pool, num_positions=self.target_positions)
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
            history = {name: one.reshape(-1, Q, used) for name, one in zip(wanted, parts[6:], strict=True)}
            return Ended.of(parts[:6], nbest=options.nbest).hypotheses(history, options, eos)

        return results
