"""The `[train]` table."""

from __future__ import annotations

from typing import Literal

from regard.config.struct import Struct, below_one, between


class TrainConfig(Struct, frozen=True):
    """The `[train]` table. The defaults are those of the paper's base model (Vaswani et al. 2017, section 5)."""

    steps: int = 100_000  # updates of the weights
    tokens: int | Literal["auto"] = 25_000  # per side and micro-batch; "auto": as many as fit into memory
    accumulate: int = 1  # micro-batches per step
    optimizer: Literal["adam", "adamw", "muon"] = "adam"  # muon: for hidden matrices; AdamW for the rest
    momentum: float = 0.95  # of muon
    betas: tuple[float, float] = (
        0.9,
        0.98,
    )  # of adam and adamw: decay of the averages of gradients and of their squares
    eps: float = 1e-9  # of adam and adamw: added to the divisor
    weight_decay: float = 0.0  # adam adds it to the gradient; adamw and muon shrink the weights by it
    schedule: Literal["noam", "inverse-sqrt", "cosine", "wsd"] = "noam"  # how the learning rate develops
    lr: float | None = None  # peak learning rate; for "noam" a factor on the paper's curve, 1 if unset
    warmup_steps: int = 4000  # steps over which the learning rate rises to its peak
    decay: float = 0.4  # "wsd": the share of steps at the end over which the rate falls to zero
    label_smoothing: float = (
        0.1  # share of the probability that is spread over all labels; not of positions, bits, CTC or a CRF
    )
    clip_norm: float = 0.0  # 0: no clipping, as in the paper
    stall_seconds: float = 600.0  # without a step until the stack of every thread is written to stalled.txt; 0: never
    max_bad_steps: int = 20  # consecutive steps with a non-finite gradient until training stops
    ema: float = 0.0  # decay of the moving average of the weights; 0: none
    average: int = 1  # the final weights are the mean of this many last checkpoints
    final: Literal["last", "best"] = "last"  # "best": the checkpoint with the best `metric`
    metric: str = "loss"  # a name in `metrics.METRICS`; decides which checkpoint is best
    patience: int = 0  # validations without improvement until training stops; 0: never
    validate_every: int = 0  # steps; 0: whenever a checkpoint is written
    validate_pairs: int = 500  # dev examples predicted at each validation; the loss is computed on all
    checkpoint_every: int = 1000  # steps; a run resumes from its newest checkpoint
    # "continue": train without saving, and try again at the next checkpoint. Version 0.1 called it "go on".
    disk_full: Literal["stop", "continue", "go on"] = "stop"
    keep: int = 5  # newest checkpoints to keep (at least `average`), besides the best one
    log_every: int = 50  # steps between two reports of progress
    seed: int = 1  # of the first weights, the order of examples, and dropout
    init: str | None = None  # another run, or a pretrained model, whose weights and tokenizers this one begins with
    # "new": train a tokenizer on this text, and find the embeddings of its tokens by their text.
    init_tokenizer: Literal["same", "new"] = "same"
    init_partial: bool = False  # begin also if tensors are missing in that run, not in this model, or of another shape
    freeze: tuple[str, ...] = ()  # parts of the model that keep their weights, such as "encoder" or "decoder.0"
    # Trained on top of `init`: all weights, low-rank adapters of the matrices of layers (Hu et al. 2022), biases.
    adapt: Literal["none", "lora", "bias"] = "none"
    lora_rank: int = 8  # of the adapters
    lora_alpha: float = 16.0  # the adapters are scaled by lora_alpha / lora_rank
    device: str = "auto"  # auto, cpu, cuda, cuda:1, ...
    # Of products. "auto": bfloat16 on a GPU that has it, float16 with a loss scale on an older one, float32 on a CPU.
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    kernels: bool = True  # use our GPU kernels where Triton is installed
    graph: bool = True  # on a GPU, record the step as one CUDA graph
    threads: int = 0  # CPU threads; 0: as PyTorch chooses
    # Under torchrun: a copy of the model in every process (DDP), or a shard (FSDP2).
    parallel: Literal["copies", "shards"] = "copies"
    tensorboard: bool = False  # also write curves for TensorBoard into the run folder

    def check(self) -> None:
        if self.tokens != "auto":
            between(self, 1, 2**31, "tokens")
        between(self, 1, 10**12, "steps", "checkpoint_every", "log_every")
        between(self, 1, 1_000_000, "accumulate", "average", "keep", "max_bad_steps", "validate_pairs")
        between(self, 0, 10**12, "warmup_steps", "patience", "validate_every", "seed", "clip_norm", "stall_seconds")
        between(self, 0, 1_000_000, "weight_decay")
        between(self, 0, 4096, "threads")
        between(self, 1, 65_536, "lora_rank")
        if not self.lora_alpha > 0:
            raise ValueError(f"lora_alpha is {self.lora_alpha}; it must be above 0")
        if self.adapt != "none" and self.init is None:
            raise ValueError(
                f"adapt is {self.adapt}, which trains a part of a model that init names; set init, or adapt=none"
            )
        for name in ("label_smoothing", "ema", "momentum"):
            below_one(self, name)
        if not self.eps > 0 or not (self.lr is None or self.lr >= 0):
            raise ValueError(f"eps is {self.eps} and lr is {self.lr}; eps must be above 0 and lr 0 or more")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}; each must be at least 0 and below 1")
        if not 0 < self.decay <= 1:
            raise ValueError(f"decay is {self.decay}; it is the share of all steps at the end, above 0 and at most 1")

    @property
    def budget(self) -> int:
        """The token budget as a number. "auto" must have been resolved."""
        assert self.tokens != "auto", "train.tokens is still auto"
        return self.tokens
