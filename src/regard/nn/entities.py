"""The memory of Recurrent Entity Networks (Henaff et al. 2017, section 2): slots with keys, each updated by a gate.

For each sentence s and each slot j, with key w_j and content h_j:

    g_j = sigmoid(s · h_j + s · w_j)                 equation 2: is this sentence about the slot?
    c_j = PReLU(U h_j + V w_j + W s)                 equation 3
    h_j = h_j + g_j c_j, divided by its length       equations 4 and 5: what is new displaces what is old

A slot begins as its key, divided by its length. Only U h_j and s · h_j depend on the sentence before; everything else is
computed for all sentences at once.

Time comes first, so that a step reads contiguous memory.

Shapes: B stories, T sentences, J slots, R = B * J rows, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.attention_log import ANSWER, GATES, current_log

TINY = 1e-12  # added to the mean square of a vector before its root


class EntityMemory(nn.Module):
    """Slots that read a story sentence by sentence. `capture_attention` records the gates: [1, T, J] per story."""

    scale: Tensor

    def __init__(self, slots: int, width: int, *, init_std: float) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.empty(slots, width).normal_(std=init_std))
        self.U, self.V, self.W = (nn.Parameter(torch.empty(width, width).normal_(std=init_std)) for _ in range(3))
        self.slope = nn.Parameter(torch.ones(width))  # of PReLU; the identity at first
        self.register_buffer("scale", torch.full((width,), width**-0.5), persistent=False)

    def forward(self, s_TBD: Tensor, real_TB: Tensor) -> Tensor:
        """Return the slots after the sentences of each story that are real: [B, J, D]."""
        (T, B, D), J = s_TBD.shape, self.keys.size(0)
        log = current_log()
        gates: list[Tensor] = []
        h_RD = F.rms_norm(self.keys, (D,), self.scale, eps=TINY).repeat(B, 1)
        # A gate that is not real is 0: its slot keeps its content.
        z_TBJ = (s_TBD @ self.keys.t()).masked_fill(~real_TB[:, :, None], float("-inf"))
        new_TBJD = (s_TBD @ self.W.t())[:, :, None] + self.keys @ self.V.t()
        for s_BD, z_BJ, new_RD in zip(s_TBD, z_TBJ, new_TBJD.view(T, B * J, D), strict=True):
            g_BJ1 = torch.baddbmm(z_BJ[:, :, None], h_RD.view(B, J, D), s_BD[:, :, None]).sigmoid()
            c_RD = F.prelu(torch.addmm(new_RD, h_RD, self.U.t()), self.slope)
            # RMS norm with a constant weight is a division by the length, in one kernel.
            h_RD = F.rms_norm(torch.addcmul(h_RD, g_BJ1.view(B * J, 1), c_RD), (D,), self.scale, eps=TINY)
            if log is not None:
                gates.append(g_BJ1.view(B, 1, J))
        if log is not None and gates:
            log.add(self, list(torch.stack(gates, dim=2)), GATES)
        return h_RD.view(B, J, D)


class EntityAnswer(nn.Module):
    """The output module (equation 6): R PReLU(q + H u), where u is the mean of the slots, weighted by softmax(q · h_j)."""

    def __init__(self, width: int, num_labels: int, *, init_std: float) -> None:
        super().__init__()
        self.H = nn.Parameter(torch.empty(width, width).normal_(std=init_std))
        self.R = nn.Parameter(torch.empty(num_labels, width).normal_(std=init_std))
        self.slope = nn.Parameter(torch.ones(width))

    def forward(self, q_BD: Tensor, h_BJD: Tensor) -> Tensor:
        """Return the logits of every answer: [B, L]."""
        p_B1J = (q_BD[:, None] @ h_BJD.transpose(1, 2)).softmax(dim=-1)
        if (log := current_log()) is not None:
            log.add(self, list(p_B1J[:, None]), ANSWER)
        u_BD = (p_B1J @ h_BJD).squeeze(1)
        return F.prelu(q_BD + u_BD @ self.H.t(), self.slope) @ self.R.t()
