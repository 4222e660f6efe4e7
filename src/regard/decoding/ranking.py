"""The ranking of one step's candidates in tensors.

Shapes: R rows, V entries per row, G groups of W entries, k wanted, B sentences of Q rows each, C wanted per sentence.
"""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 64


class Ranking:
    """Finds the best of a step's logits. Entries may be made impossible after it is created, but not raised."""

    def __init__(self, logits_RV: Tensor, *, normalized: bool) -> None:
        self.logits = logits_RV
        self.normalizer: Tensor | None = None  # log of the sum of exp of each row, [R], if wanted
        if normalized:
            self.normalizer = log_normalizer(logits_RV)

    def best(self, more_R: Tensor, *, beams: int, count: int, filler: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best entries of each sentence's rows: their scores, the entries, and their rows, [B, C], best first.

        A score is the entry plus its row's value in `more_R`. Where a small vocabulary has too few entries, there are
        fewer than `count`, or the rest are minus infinity; those may be reported as the entry `filler`.
        """
        R, V = self.logits.shape
        each = min(count, V)
        best_RC, places_RC = top_k(self.logits, each)
        if beams == 1:
            return best_RC + more_R[:, None], places_RC, torch.arange(R, device=best_RC.device)[:, None].expand(R, each)
        scores = (best_RC + more_R[:, None]).view(-1, beams * each)
        scores_BC, flat_BC = scores.topk(min(count, beams * each), dim=-1)
        first_B1 = torch.arange(0, R, beams, device=scores.device)[:, None]
        return scores_BC, places_RC.view(-1, beams * each).gather(1, flat_BC), flat_BC // each + first_B1


def top_k(scores_RV: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest entries of each row, largest first, and their places. Several times faster than `torch.topk`.

    The k largest entries lie in the k groups with the largest maxima, so only those groups are searched.
    """
    R, V = scores_RV.shape
    num_groups = V // GROUP
    if num_groups <= 4 * k:
        return torch.topk(scores_RV, k, dim=-1)
    grouped = num_groups * GROUP
    best_groups = torch.topk(_group_maxima(scores_RV, num_groups), k, dim=-1).indices
    inside = torch.arange(GROUP, device=scores_RV.device)
    places = torch.add(inside, best_groups.unsqueeze(2), alpha=GROUP).view(R, -1)
    if grouped < V:
        rest = torch.arange(grouped, V, device=scores_RV.device).expand(R, -1)
        places = torch.cat([places, rest], dim=1)
    values, chosen = torch.topk(scores_RV.gather(1, places), k, dim=-1)
    return values, places.gather(1, chosen)


def _group_maxima(scores_RV: Tensor, num_groups: int) -> Tensor:
    """Return the largest entry of each group: [R, G]. The matrix may be row-major or column-major."""
    grouped = num_groups * GROUP
    if scores_RV.stride(0) == 1:
        return scores_RV.t()[:grouped].view(num_groups, GROUP, -1).amax(dim=1).t()
    return scores_RV[:, :grouped].unflatten(1, (num_groups, GROUP)).amax(dim=-1)


def log_normalizer(logits_RV: Tensor) -> Tensor:
    """Return the log of the sum of exp of each row: [R]. One pass is enough unless exp overflows, which is rare."""
    sums_R = logits_RV.float().exp().sum(dim=-1)
    if bool(((sums_R > 1e-30) & (sums_R < 1e37)).all()):
        return sums_R.log_()
    return logits_RV.float().logsumexp(dim=-1)
