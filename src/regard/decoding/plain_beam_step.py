"""One step of a search on the device in PyTorch, for machines without kernels: the reference of `kernels.beam_step`.

`decoding.search_tensors` says what the tensors hold.

Shapes: P places, B sentences that are active, Q beams, R rows, T steps that there is room for, V vocabulary,
        C candidates per sentence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.decoding.hypothesis import IMPOSSIBLE
from regard.decoding.ranking import top_k
from regard.nn.decoder_pool import Number


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
