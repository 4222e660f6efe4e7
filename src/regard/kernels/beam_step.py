"""One step of beam search on the device: the best candidates of each row, and what becomes of them.

`decoding.plain_beam_step` has the same in PyTorch, and `decoding.search_tensors` says what the tensors hold.

Shapes: R rows, Q beams, V vocabulary, P parts of a row of logits, C candidates of a sentence.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PART = {"ENTRIES": 1024, "num_warps": 4}  # the fastest of 12 settings on an H200, for 37,000 columns
FEWEST_ENTRIES = 64  # of a group
MOST_GROUPS = 1024  # of a row, rounded up to a power of two
COUNTED = 1024  # sentences that are counted at a time
BLOCK = 32  # steps of ancestors that are copied at a time


@triton.jit
def _restricted(x, column, inside, banned, numbers, EOS: tl.constexpr):
    """Return logits with minus infinity for what may not come next."""
    never = tl.load(banned + column, mask=inside, other=1) != 0
    too_early = (column == EOS) & (tl.load(numbers) < tl.load(numbers + 2))
    return tl.where(never | too_early, float("-inf"), x)


@triton.jit
def _summarize(
    logits, row_stride, banned, numbers, maxima, peaks, sums, V, P, groups,
    EOS: tl.constexpr, GROUP: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Store the sum of exp of a part of a row, and the largest entry of each of its groups."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    group = part * (ENTRIES // GROUP) + tl.arange(0, ENTRIES // GROUP)
    column = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = column < V
    x = tl.load(logits + row * row_stride + column, mask=inside, other=float("-inf"))
    peak = tl.max(tl.max(x, axis=1), axis=0)
    base = tl.where(peak > float("-inf"), peak, 0.0)
    tl.store(peaks + row * P + part, base)
    tl.store(sums + row * P + part, tl.sum(tl.sum(tl.exp(x - base), axis=1), axis=0))
    x = _restricted(x, column, inside, banned, numbers, EOS)
    tl.store(maxima + row * groups + group, tl.max(x, axis=1), mask=group < groups)


@triton.jit
def _take_largest(x, row, column):
    """Return the largest entry of a matrix, its row and column, and the matrix without it.

    Not by way of a vector: Triton 3.6 reorders a matrix that is reshaped for a reduction only, and the place is then wrong.
    """
    tops, columns = tl.max(x, axis=1, return_indices=True)
    top, at_row = tl.max(tops, axis=0, return_indices=True)
    at_column = tl.sum(tl.where(row == at_row, columns, 0), axis=0)
    taken = (row == at_row)[:, None] & (column == at_column)[None, :]
    return top, at_row, at_column, tl.where(taken, float("-inf"), x)


@triton.jit
def _advance(
    logits, row_stride, banned, maxima, peaks, sums, places, numbers, limits, penalties,
    tokens, logp, active, counts, ended_scores, ended_logp, ended_steps, ended_beams, ended_tokens,
    history_tokens, history_parents, history_logp, ancestors, V, P, groups,
    EOS: tl.constexpr, Q: tl.constexpr, QS: tl.constexpr, C: tl.constexpr, CS: tl.constexpr,
    PARTS: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    place = tl.load(places + group).to(tl.int64)
    if tl.load(active + place) == 0:
        return
    position, steps = tl.load(numbers), tl.load(numbers + 1)
    early, nbest = tl.load(numbers + 3), tl.load(numbers + 4)
    limit, count = tl.load(limits + place), tl.load(counts + place)
    impossible = float("-inf")

    # What is added to the logits of each row
    q = tl.arange(0, QS)
    is_q = q < Q
    row = (group * Q + q).to(tl.int64)
    part = tl.arange(0, PARTS)
    of_part = is_q[:, None] & (part < P)[None, :]
    peak = tl.load(peaks + row[:, None] * P + part[None, :], mask=of_part, other=impossible)
    total = tl.load(sums + row[:, None] * P + part[None, :], mask=of_part, other=0.0)
    highest = tl.where(is_q, tl.max(peak, axis=1), 0.0)
    normalizer = highest + tl.log(tl.sum(total * tl.exp(peak - highest[:, None]), axis=1))
    before = tl.load(logp + place * Q + q, mask=is_q, other=impossible)
    more = tl.where(is_q, before - normalizer, impossible)

    # The C best candidates lie in the C groups, of all rows, with the largest entries
    c = tl.arange(0, CS)
    entry = tl.arange(0, GROUPS)
    of_entry = is_q[:, None] & (entry < groups)[None, :]
    pool = tl.load(maxima + row[:, None] * groups + entry[None, :], mask=of_entry, other=impossible) + more[:, None]
    in_group = tl.zeros([CS], tl.int32)
    group_of = tl.zeros([CS], tl.int32)
    found = tl.zeros([CS], tl.int32)
    for i in range(C):
        top, at_q, at_entry, pool = _take_largest(pool, q, entry)
        in_group = tl.where(c == i, at_q, in_group)
        group_of = tl.where(c == i, at_entry, group_of)
        found = tl.where(c == i, (top > impossible).to(tl.int32), found)
    column = group_of[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = (found[:, None] > 0) & (column < V)
    beam_of = tl.minimum(in_group, Q - 1)
    line = (group * Q + beam_of).to(tl.int64) * row_stride
    x = tl.load(logits + line[:, None] + column, mask=inside, other=impossible)
    x = _restricted(x, column, inside, banned, numbers, EOS)
    more_of = tl.sum(tl.where(beam_of[:, None] == q[None, :], more[None, :], 0.0), axis=1)
    few = x + more_of[:, None]
    score = tl.full([CS], impossible, tl.float32)
    token = tl.full([CS], EOS, tl.int32)
    parent = tl.zeros([CS], tl.int32)
    for i in range(C):
        top, at_group, at_entry, few = _take_largest(few, c, tl.arange(0, GROUP))
        score = tl.where(c == i, top, score)
        token = tl.where(c == i, tl.sum(tl.where(c == at_group, group_of, 0), axis=0) * GROUP + at_entry, token)
        parent = tl.where(c == i, tl.sum(tl.where(c == at_group, beam_of, 0), axis=0), parent)
    possible = score > impossible
    token = tl.where(possible, token, EOS)

    # Those that end
    length = position + 1
    at_end = length >= limit
    is_eos = token == EOS
    ends = possible & is_eos & (c < Q)
    is_open = possible & (token != EOS)
    open_before = tl.cumsum(is_open.to(tl.int32), axis=0) - is_open.to(tl.int32)
    count += tl.sum(ends.to(tl.int32), axis=0)
    room = tl.where(early == 1, open_before < Q - count, c < Q)
    cut = is_open & room & at_end
    count += tl.sum(cut.to(tl.int32), axis=0)
    penalty = tl.load(penalties + length)
    new = ends | cut
    new_score = tl.where(new, score.to(tl.float64) / penalty, float("-inf"))
    order = tl.where(ends, c, c + CS)
    old_score = tl.load(ended_scores + place * Q + q, mask=is_q, other=float("-inf"))
    old_logp = tl.load(ended_logp + place * Q + q, mask=is_q, other=0.0)
    old_step = tl.load(ended_steps + place * Q + q, mask=is_q, other=0)
    old_beam = tl.load(ended_beams + place * Q + q, mask=is_q, other=0)
    old_token = tl.load(ended_tokens + place * Q + q, mask=is_q, other=0)
    higher_new = new[None, :] & (new_score[None, :] > old_score[:, None])
    old_rank = q + tl.sum(higher_new.to(tl.int32), axis=1)
    higher_old = is_q[None, :] & (old_score[None, :] >= new_score[:, None])
    same = (new_score[None, :] == new_score[:, None]) & (order[None, :] < order[:, None])
    higher_other = new[None, :] & ((new_score[None, :] > new_score[:, None]) | same)
    new_rank = tl.sum(higher_old.to(tl.int32), axis=1) + tl.sum(higher_other.to(tl.int32), axis=1)
    old_stays, new_stays = is_q & (old_rank < Q), new & (new_rank < Q)
    tl.debug_barrier()
    tl.store(ended_scores + place * Q + old_rank, old_score, mask=old_stays)
    tl.store(ended_logp + place * Q + old_rank, old_logp, mask=old_stays)
    tl.store(ended_steps + place * Q + old_rank, old_step, mask=old_stays)
    tl.store(ended_beams + place * Q + old_rank, old_beam, mask=old_stays)
    tl.store(ended_tokens + place * Q + old_rank, old_token, mask=old_stays)
    tl.store(ended_scores + place * Q + new_rank, new_score, mask=new_stays)
    tl.store(ended_logp + place * Q + new_rank, score, mask=new_stays)
    tl.store(ended_steps + place * Q + new_rank, position + c * 0, mask=new_stays)
    tl.store(ended_beams + place * Q + new_rank, parent, mask=new_stays)
    tl.store(ended_tokens + place * Q + new_rank, token, mask=new_stays)
    tl.store(counts + place, count)

    # Whether the sentence is finished
    best_open = tl.max(tl.where(is_open, score, impossible), axis=0)
    enough = count >= Q
    last_old = tl.max(tl.where(is_q & (old_rank == Q - 1), old_score, float("-inf")), axis=0)
    last_new = tl.max(tl.where(new & (new_rank == Q - 1), new_score, float("-inf")), axis=0)
    wanted_old = tl.max(tl.where(is_q & (old_rank == nbest - 1), old_score, float("-inf")), axis=0)
    wanted_new = tl.max(tl.where(new & (new_rank == nbest - 1), new_score, float("-inf")), axis=0)
    open_now = best_open.to(tl.float64) / penalty
    open_later = best_open.to(tl.float64) / tl.load(penalties + limit)
    no_better_now = (early == 0) & enough & (open_now <= tl.maximum(last_old, last_new))
    no_better = no_better_now | (open_later <= tl.maximum(wanted_old, wanted_new))
    too_few = count < nbest
    done = (enough & (early == 1)) | (too_few & (best_open == impossible)) | ((count >= nbest) & no_better)
    tl.store(active + place, 1 - (at_end | done).to(tl.int32))

    # The next tokens: of the best Q candidates that do not end
    is_c = c < C
    continues = (is_c & (is_eos == 0)).to(tl.int32)
    stops = (is_c & is_eos).to(tl.int32)
    rank = tl.where(is_eos, tl.sum(continues, axis=0) + tl.cumsum(stops, axis=0) - 1, tl.cumsum(continues, axis=0) - 1)
    chosen = is_c & (rank < Q)
    tl.store(tokens + place * Q + rank, token, mask=chosen)
    tl.store(logp + place * Q + rank, tl.where(is_eos, impossible, score), mask=chosen)
    past = (place * Q + rank) * steps + position
    tl.store(history_tokens + past, token, mask=chosen)
    tl.store(history_parents + past, parent, mask=chosen)
    tl.store(history_logp + past, score, mask=chosen)
    if Q > 1:
        parents = tl.sum(tl.where((rank[None, :] == q[:, None]) & chosen[None, :], parent[None, :], 0), axis=1)
        for start in range(0, position, BLOCK):
            t = start + tl.arange(0, BLOCK)
            there = is_q[:, None] & (t < position)[None, :]
            copied = tl.load(ancestors + (place * Q + parents)[:, None] * steps + t[None, :], mask=there, other=0)
            tl.debug_barrier()
            tl.store(ancestors + (place * Q + q)[:, None] * steps + t[None, :], copied, mask=there)
        tl.store(ancestors + (place * Q + q) * steps + position, parents, mask=is_q)


@triton.jit
def _count(active, numbers, remaining, B, STEPS: tl.constexpr, COUNTED: tl.constexpr):
    total = tl.zeros([COUNTED], tl.int32)
    for start in range(0, B, COUNTED):
        b = start + tl.arange(0, COUNTED)
        total += tl.load(active + b, mask=b < B, other=0)
    position = tl.load(numbers)
    tl.store(remaining + position % STEPS, tl.sum(total, axis=0))
    tl.store(numbers, position + 1)


def advance(logits_RV: Tensor, search: dict[str, Tensor], *, eos: int, beams: int) -> None:
    """Make the rows of active sentences continue with their best candidates, and count a step."""
    (R, V), count, entries = logits_RV.shape, 1 if beams == 1 else 2 * beams, PART["ENTRIES"]
    logits_RV = logits_RV if logits_RV.stride(1) == 1 else logits_RV.contiguous()
    size = max(FEWEST_ENTRIES, triton.next_power_of_2(triton.cdiv(V, MOST_GROUPS)))
    parts, groups = triton.cdiv(V, entries), triton.cdiv(V, size)
    peaks, sums = torch.empty(2, R, parts, dtype=torch.float32, device=logits_RV.device)
    maxima = torch.empty(R, groups, dtype=torch.float32, device=logits_RV.device)
    given = logits_RV, logits_RV.stride(0), search["banned"]
    _summarize[(R, parts)](
        *given, search["numbers"], maxima, peaks, sums, V, parts, groups, EOS=eos, GROUP=size, **PART
    )
    # One beam is computed as two, of which the second does not exist, so that no reduction is of a single entry.
    padded, pool = max(2, triton.next_power_of_2(beams)), triton.next_power_of_2(groups)
    _advance[(R // beams,)](
        *given, maxima, peaks, sums, search["places"], search["numbers"], search["limits"], search["penalties"],
        search["tokens"], search["logp"], search["active"], search["counts"], search["ended_scores"],
        search["ended_logp"], search["ended_steps"], search["ended_beams"], search["ended_tokens"],
        search["history_tokens"], search["history_parents"], search["history_logp"], search["ancestors"],
        V, parts, groups, EOS=eos, Q=beams, QS=padded, C=count, CS=max(2, triton.next_power_of_2(count)),
        PARTS=triton.next_power_of_2(parts), GROUPS=pool, GROUP=size, BLOCK=BLOCK,
        num_warps=min(8, max(1, padded * pool // 1024)),
    )  # fmt: skip
    active, remaining = search["active"], search["remaining"]
    _count[(1,)](active, search["numbers"], remaining, active.numel(), STEPS=remaining.numel(), COUNTED=COUNTED)
