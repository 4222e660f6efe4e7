"""A linear-chain conditional random field (Lafferty et al. 2001) over the labels of each sequence.

The score of a sequence of labels is the sum of the scores of its labels, and of a transition score for each label and the
one before it. The first and the last label have scores of their own. Sequences are padded to a rectangle; no lengths are
needed on the host. A token without a label is skipped: its neighbours are then next to each other.

Shapes: N tokens, B sequences, T tokens of the longest one, L labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.data.ragged import Layout


class Crf(nn.Module):
    """Transition scores, the likelihood of labels, and the best labels."""

    def __init__(self, num_labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(num_labels, num_labels))  # from row to column
        self.first = nn.Parameter(torch.zeros(num_labels))
        self.last = nn.Parameter(torch.zeros(num_labels))

    def loss(self, scores_NL: Tensor, labels_N: Tensor, layout: Layout) -> Tensor:
        """Return the negative log-likelihood, summed over the sequences. Tokens with a negative label are skipped."""
        scores_BTL, labels_BT, counts_BT = self._rectangle(scores_NL, labels_N, layout)
        return (self._log_partition(scores_BTL, counts_BT) - self._path(scores_BTL, labels_BT, counts_BT)).sum()

    def best(self, scores_NL: Tensor, layout: Layout) -> Tensor:
        """Return the labels of highest score, by the Viterbi algorithm: [N]."""
        scores_BTL, _, counts_BT = self._rectangle(scores_NL, torch.zeros_like(layout.sentences), layout)
        best_BL, steps = scores_BTL[:, 0] + self.first.float(), []
        stay_L = torch.arange(scores_BTL.size(-1), device=scores_NL.device)
        for time in range(1, scores_BTL.size(1)):
            through_BL, before_BL = (best_BL[:, :, None] + self.transitions.float()).max(dim=1)
            here_B1 = counts_BT[:, time, None]
            best_BL = torch.where(here_B1, through_BL + scores_BTL[:, time], best_BL)
            steps.append(torch.where(here_B1, before_BL, stay_L))
        label_B1 = (best_BL + self.last.float()).argmax(dim=-1, keepdim=True)
        found = [label_B1]
        for before_BL in reversed(steps):
            found.append(before_BL.gather(1, found[-1]))
        # After its end, a sequence stays at its last label.
        return layout.unpad(torch.cat(found[::-1], dim=1))

    def marginals(self, scores_NL: Tensor, layout: Layout) -> Tensor:
        """Return the probability of each label of each token: the gradient of the log-partition function, [N, L]."""
        with torch.inference_mode(False), torch.enable_grad():
            scores_NL = scores_NL.detach().float().clone().requires_grad_()
            zeros = torch.zeros_like(scores_NL[:, 0], dtype=torch.int64)
            scores_BTL, _, counts_BT = self._rectangle(scores_NL, zeros, Layout(layout.lengths, layout.device))
            (found,) = torch.autograd.grad(self._log_partition(scores_BTL, counts_BT).sum(), scores_NL)
        return found

    def _rectangle(self, scores_NL: Tensor, labels_N: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, labels, and which tokens count: [B, T, ...]."""
        with torch.no_grad():
            labels_BT = layout.pad(labels_N)
        counts_BT = layout.mask & (labels_BT >= 0)
        return layout.pad(scores_NL.float()), labels_BT.clamp(min=0).long(), counts_BT

    def _log_partition(self, scores_BTL: Tensor, counts_BT: Tensor) -> Tensor:
        """Return the logarithm of the summed exp(score) of all sequences of labels: [B]. It is 0 where no token counts."""
        begun_BT = (counts_BT.cumsum(dim=1) - counts_BT.long()) > 0  # whether an earlier token counts
        alpha_BL = torch.zeros_like(scores_BTL[:, 0])
        for time in range(scores_BTL.size(1)):
            through_BL = (alpha_BL[:, :, None] + self.transitions.float()).logsumexp(dim=1)
            before_BL = torch.where(begun_BT[:, time, None], through_BL, self.first.float())
            alpha_BL = torch.where(counts_BT[:, time, None], before_BL + scores_BTL[:, time], alpha_BL)
        total_B = (alpha_BL + self.last.float()).logsumexp(dim=-1)
        return torch.where(counts_BT.any(dim=1), total_B, 0.0)

    def _path(self, scores_BTL: Tensor, labels_BT: Tensor, counts_BT: Tensor) -> Tensor:
        """Return the score of these labels: [B]."""
        own_BT = scores_BTL.gather(2, labels_BT[:, :, None])[:, :, 0]
        places_T = torch.arange(labels_BT.size(1), device=labels_BT.device)
        latest_BT = torch.where(counts_BT, places_T, -1).cummax(dim=1).values  # the last token that counts, up to here
        earlier_BT = torch.cat([torch.full_like(latest_BT[:, :1], -1), latest_BT[:, :-1]], dim=1)
        before_BT = labels_BT.gather(1, earlier_BT.clamp(min=0))
        moved_BT = torch.where(
            earlier_BT >= 0, self.transitions.float()[before_BT, labels_BT], self.first.float()[labels_BT]
        )
        last_B = labels_BT.gather(1, latest_BT[:, -1:].clamp(min=0))[:, 0]
        ends_B = torch.where(counts_BT.any(dim=1), self.last.float()[last_B], 0.0)
        return torch.where(counts_BT, own_BT + moved_BT, 0.0).sum(dim=1) + ends_B
