"""A Recurrent Entity Network as its equations read: padded words and sentences, and a loop over the sentences.

Shapes: B stories, T sentences, W words of a sentence, J slots, D width, L answers.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Recipe
from regard.data.batch import NO_LABEL, Batch
from regard.models import model_config
from regard.models.entnet import EntNetConfig


class PlainEntNet(nn.Module):
    """Equations 1 to 6 of Henaff et al. (2017), one after the other."""

    def __init__(self, config: EntNetConfig, *, source_size: int, num_labels: int) -> None:
        super().__init__()
        D, std = config.width, config.init_std
        self.embedding = nn.Embedding(source_size, D)
        self.story_masks = nn.Parameter(torch.ones(config.max_words, D))
        self.question_masks = nn.Parameter(torch.ones(config.max_words, D))
        self.keys = nn.Parameter(torch.empty(config.slots, D))
        self.U, self.V, self.W, self.H = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.R = nn.Linear(D, num_labels, bias=False)
        self.update, self.activation = nn.PReLU(D, init=1.0), nn.PReLU(D, init=1.0)
        for weight in (
            self.embedding.weight,
            self.keys,
            *(m.weight for m in self.modules() if isinstance(m, nn.Linear)),
        ):
            nn.init.normal_(weight, std=std)

    def encode(self, ids: Tensor, masks: Tensor) -> Tensor:
        """Return the sum of embeddings times masks; 0 is padding: [..., W] to [..., D]."""
        masks = masks[torch.arange(ids.size(-1), device=ids.device).clamp(max=masks.size(0) - 1)]
        return (self.embedding(ids.clamp(min=0)) * masks * (ids >= 0)[..., None]).sum(dim=-2)

    def forward(self, story_BTW: Tensor, question_BW: Tensor, labels_B: Tensor) -> Tensor:
        sentences_BTD = self.encode(story_BTW, self.story_masks)
        question_BD = self.encode(question_BW, self.question_masks)
        real_BT = (story_BTW >= 0).any(dim=-1)
        w_JD = self.keys
        h_BJD = F.normalize(w_JD, dim=-1).expand(len(labels_B), -1, -1)
        for t in range(sentences_BTD.size(1)):
            s_B1D = sentences_BTD[:, t, None]
            gate_BJ = torch.sigmoid((s_B1D * h_BJD).sum(dim=-1) + (s_B1D * w_JD).sum(dim=-1))
            pre_BJD = self.U(h_BJD) + self.V(w_JD) + self.W(s_B1D)
            candidate_BJD = self.update(pre_BJD.transpose(1, 2)).transpose(1, 2)
            new_BJD = F.normalize(h_BJD + gate_BJ[..., None] * candidate_BJD, dim=-1)
            h_BJD = torch.where(real_BT[:, t, None, None], new_BJD, h_BJD)
        p_BJ = torch.softmax((question_BD[:, None] * h_BJD).sum(dim=-1), dim=-1)
        u_BD = (p_BJ[..., None] * h_BJD).sum(dim=1)
        logits_BL = self.R(self.activation(question_BD + self.H(u_BD))).float()
        return F.cross_entropy(logits_BL, labels_B, ignore_index=NO_LABEL, reduction="sum")


def plain_model(recipe: Recipe, sizes: dict[str, int]) -> nn.Module:
    """Return the entity network that the recipe describes."""
    _, config = model_config(recipe.model)
    assert isinstance(config, EntNetConfig), "the recipe's model is not an entity network"
    return PlainEntNet(config, **sizes)


def padded(batch: Batch) -> tuple[Tensor, ...]:
    """Return the words of stories, [B, T, W], and of questions, [B, W], with -1 for padding, and the labels: [B]."""
    lengths = batch.extras["sentences"].as_lists()
    words = batch.source.split()
    sentences = [list(ids.split(parts)) for ids, parts in zip(words, lengths, strict=True)]
    T, W = max(len(one) for one in sentences) - 1, max(max(parts) for parts in lengths)
    story, question = torch.full((len(words), T, W), -1), torch.full((len(words), W), -1)
    for b, (*told, asked) in enumerate(sentences):
        question[b, : len(asked)] = asked
        for t, ids in enumerate(told):
            story[b, t, : len(ids)] = ids
    return story, question, batch.labels.values
