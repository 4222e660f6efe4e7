"""fairseq's, OpenNMT-py's and Marian's models, written by small scripts, equal a plain implementation in float64."""

import argparse
import io
import math
from collections import OrderedDict

import numpy as np
import pytest
import torch

import regard
from regard.config import SearchOptions
from regard.data.ragged import Ragged
from regard.decoding.search import search
from regard.errors import ConfigError
from regard.exchange.importing import import_model
from regard.run.folder import RunFolder
from regard.text.symbols import BOS, EOS
from tests.exchange.reference import Reference, sinusoids

WIDTH, HIDDEN, HEADS, LAYERS = 16, 20, 4, (2, 3)
WORDS = [f"w{number}" for number in range(26)]
WORTE = [f"t{number}" for number in range(22)]
LIMIT = 12


def variants(options):
    """Parametrize with the options of a toolkit, and how many sources are compared: more for the first ones."""
    (first, plain), *others = options.items()
    return pytest.mark.parametrize(
        ("options", "count"),
        [
            pytest.param(plain, 12, id=first),
            pytest.param(plain, 100, id=f"{first}, 100 sources", marks=pytest.mark.slow),
            *(pytest.param(one, 24, id=name, marks=pytest.mark.slow) for name, one in others),
        ],
    )


@pytest.fixture
def draw():
    """Random tensors that give varied outputs."""
    generator = torch.Generator().manual_seed(11)

    def tensor(*shape, spread=0.35):
        return torch.randn(*shape, generator=generator) * spread

    return tensor


def sources(count, size, low=4):
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, 8, (count,), generator=generator).tolist()
    return [torch.randint(low, size, (length,), generator=generator).tolist() for length in lengths]


def compare(run, reference, ids, *, here, to_source, ending, never, eos):
    """Compare logits in float64, and outputs at beams 1 and 4, of the run and of the reference.

    `to_source` turns words there into what the encoder reads there, `ending` what ours reads behind them.
    """
    model = regard.load_model(run.path, device="cpu")
    wide = regard.load_model(run.path, device="cpu").double()
    size = len(reference.target_table)
    prefix = [7, 9, 5, 7]
    for words in ids[:5]:
        expected = reference.logits(reference.encode([to_source(words)]), torch.tensor([prefix]))[0]
        with torch.no_grad():
            memory = wide.encode(Ragged.from_lists([[*(here["source"][id] for id in words), *ending]]))
            found = wide.decode(Ragged.from_lists([[BOS, *(here["target"][id] for id in prefix)]]), memory)
        columns = [here["target"][id] for id in range(size)]
        torch.testing.assert_close(found[:, columns], expected, rtol=1e-5, atol=2e-5)
    lengths = set()
    for beam in (1, 4):
        options = SearchOptions(
            beam=beam, length_penalty=1.0, length_penalty_kind="power", max_extra=100, max_length=LIMIT
        )
        batch = Ragged.from_lists([[*(here["source"][id] for id in words), *ending] for words in ids])
        found = [best[0].ids for best in search(model.for_inference(), batch, options=options)]
        expected = reference.search(
            [to_source(words) for words in ids], beam=beam, alpha=1.0, limit=LIMIT, eos=eos, never=never
        )
        assert found == [[here["target"][id] for id in output] for output in expected]
        lengths |= {len(output) for output in expected}
    assert len(lengths) > (3 if len(ids) > 30 else 1), lengths


def let_outputs_end(reference, bias, eos, ids):
    """Change the bias of the decoder's last norm so that three in ten steps of greedy search would end the output."""
    row = reference.output_weight[eos]
    missing = []
    with torch.no_grad():
        for source in ids:
            memory, prefix = reference.encode([source]), []
            for _ in range(8):
                logits = reference.logits(memory, torch.tensor([prefix], dtype=torch.long))[0, -1]
                ending, logits[eos] = logits[eos].item(), float("-inf")
                missing.append(logits.max().item() - ending)
                prefix.append(int(logits.argmax()))
        bias += (torch.tensor(missing).quantile(0.3) * row / (row @ row)).float()


def attention(draw, width=WIDTH):
    return draw(width, width, spread=0.5), draw(width, spread=0.1)


def norm(draw):
    return 1 + draw(WIDTH, spread=0.1), draw(WIDTH, spread=0.1)


# fairseq


def fairseq_folder(
    folder, draw, *, pre_norm, learned=False, share="none", activation="relu", old=False, cfg=False, ends=False, **more
):
    """Write a checkpoint as fairseq does, and dictionaries. Return its tensors. With `ends`, outputs end."""
    shared = share == "all"
    sizes = {"en": 4 + len(WORDS), "de": 4 + len(WORDS if shared else WORTE)}
    tensors = OrderedDict()
    for side, language, count in (("encoder", "en", LAYERS[0]), ("decoder", "de", LAYERS[1])):
        tensors[f"{side}.embed_tokens.weight"] = draw(sizes[language], WIDTH, spread=0.25)
        tensors[f"{side}.embed_tokens.weight"][1] = 0
        tensors[f"{side}.version"] = torch.tensor([3.0])
        if learned:
            tensors[f"{side}.embed_positions.weight"] = draw(34, WIDTH)
        else:
            tensors[f"{side}.embed_positions._float_tensor"] = torch.zeros(1)
        for number in range(count):
            at = f"{side}.layers.{number}"
            kinds = ["self_attn"] + (["encoder_attn"] if side == "decoder" else [])
            for kind in kinds:
                for one in ("k_proj", "v_proj", "q_proj", "out_proj"):
                    tensors[f"{at}.{kind}.{one}.weight"], tensors[f"{at}.{kind}.{one}.bias"] = attention(draw)
                tensors[f"{at}.{kind}_layer_norm.weight"], tensors[f"{at}.{kind}_layer_norm.bias"] = norm(draw)
            tensors[f"{at}.fc1.weight"], tensors[f"{at}.fc1.bias"] = draw(HIDDEN, WIDTH), draw(HIDDEN, spread=0.1)
            tensors[f"{at}.fc2.weight"], tensors[f"{at}.fc2.bias"] = draw(WIDTH, HIDDEN), draw(WIDTH, spread=0.1)
            tensors[f"{at}.final_layer_norm.weight"], tensors[f"{at}.final_layer_norm.bias"] = norm(draw)
        if pre_norm:
            tensors[f"{side}.layer_norm.weight"], tensors[f"{side}.layer_norm.bias"] = norm(draw)
    if shared:
        tensors["encoder.embed_tokens.weight"] = tensors["decoder.embed_tokens.weight"]
    tensors["decoder.output_projection.weight"] = (
        draw(sizes["de"], WIDTH, spread=0.5) if share == "none" else tensors["decoder.embed_tokens.weight"]
    )
    last = "decoder.layer_norm" if pre_norm else f"decoder.layers.{LAYERS[1] - 1}.final_layer_norm"
    if ends and not learned:
        reference = fairseq_reference(tensors, pre_norm=pre_norm, learned=False, activation=activation)
        let_outputs_end(reference, tensors[f"{last}.bias"], 2, [[*words, 2] for words in sources(8, sizes["en"])])
    args = argparse.Namespace(
        arch="transformer_iwslt_de_en", encoder_embed_dim=WIDTH, decoder_embed_dim=WIDTH, encoder_layers=LAYERS[0],
        decoder_layers=LAYERS[1], encoder_ffn_embed_dim=HIDDEN, decoder_ffn_embed_dim=HIDDEN, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_normalize_before=pre_norm, decoder_normalize_before=pre_norm,
        encoder_learned_pos=learned, decoder_learned_pos=learned, max_source_positions=32, max_target_positions=32,
        activation_fn=activation, dropout=0.3, share_all_embeddings=shared,
        share_decoder_input_output_embed=share in ("all", "target"), source_lang="en", target_lang="de",
        no_scale_embedding=False, adaptive_softmax_cutoff=None, layernorm_embedding=False, **more,
    )  # fmt: skip
    state = {
        "args": args,
        "cfg": None,
        "model": tensors,
        "extra_state": {"epoch": 3},
        "last_optimizer_state": {"state": {}},
    }
    if cfg:
        state |= {
            "args": None,
            "cfg": {"model": args, "task": {"source_lang": "en", "target_lang": "de"}, "common": {}},
        }
    folder.mkdir()
    torch.save(state, folder / "checkpoint_best.pt", _use_new_zipfile_serialization=not old)
    for language, words in (("en", WORDS), ("de", WORDS if shared else WORTE)):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 10\n" for word in words))
    return tensors


def fairseq_reference(tensors, *, pre_norm, learned, activation="relu"):
    def pair(module):
        return tensors[f"{module}.weight"], tensors[f"{module}.bias"]

    def names(side, number):
        at = f"{side}.layers.{number}"
        order = ("q_proj", "k_proj", "v_proj", "out_proj")
        return {
            "self": [f"{at}.self_attn.{one}" for one in order],
            "self norm": f"{at}.self_attn_layer_norm",
            "cross": [f"{at}.encoder_attn.{one}" for one in order],
            "cross norm": f"{at}.encoder_attn_layer_norm",
            "feed-forward": (f"{at}.fc1", f"{at}.fc2"),
            "feed-forward norm": f"{at}.final_layer_norm",
            "top": f"{side}.layer_norm",
        }

    positions = sinusoids(40, WIDTH, log=True, halves=True, first=2)
    if learned:
        positions = tensors["decoder.embed_positions.weight"][2:]
        assert torch.equal(positions, tensors["encoder.embed_positions.weight"][2:])
    table = tensors["decoder.embed_tokens.weight"]
    return Reference(
        linear=pair, norm=pair, names=names, layers=LAYERS, heads=HEADS,
        embeddings=(tensors["encoder.embed_tokens.weight"], table),
        output=(tensors["decoder.output_projection.weight"], None), positions=positions, pre_norm=pre_norm, eps=1e-5,
        activation=activation, scale=math.sqrt(WIDTH), start=table[2],
    )  # fmt: skip


def fairseq_here(size):
    """The id here of each id there: <s>, <pad>, </s> and <unk> are 0 to 3 there."""
    return {0: 3, 1: BOS, 2: EOS, 3: 0, **{id: id for id in range(4, size)}}


@variants(
    {
        "post-norm": {"pre_norm": False},
        "pre-norm with cfg": {"pre_norm": True, "activation": "gelu", "cfg": True, "share": "target"},
        "shared, before PyTorch 1.6": {"pre_norm": True, "old": True, "share": "all", "activation": "swish"},
    }
)
def test_a_fairseq_checkpoint_equals_the_reference(tmp_path, draw, count, options):
    tensors = fairseq_folder(tmp_path / "model", draw, ends=True, **options)
    reference = fairseq_reference(
        tensors, pre_norm=options["pre_norm"], learned=False, activation=options.get("activation", "relu")
    )
    run = import_model(tmp_path / "model", tmp_path / "run")
    sizes = {
        "source": len(tensors["encoder.embed_tokens.weight"]),
        "target": len(tensors["decoder.embed_tokens.weight"]),
    }
    here = {side: fairseq_here(size) for side, size in sizes.items()}
    compare(
        run, reference, sources(count, sizes["source"]), here=here, to_source=lambda words: [*words, 2], ending=[EOS],
        never=[1], eos=2,
    )  # fmt: skip
    translator = regard.load(run.path, device="cpu")
    assert translator.translate(["w3 w4 w5"])[0].split()  # words between spaces
    assert "symbols separated by spaces" in (run.path / "card.md").read_text()


def test_learned_positions_of_fairseq_begin_behind_those_of_padding(tmp_path, draw):
    folder = tmp_path / "model"
    tensors = fairseq_folder(folder, draw, pre_norm=False, learned=True)
    model = regard.load_model(import_model(folder, tmp_path / "run").path, device="cpu")
    assert model.max_length == 32
    assert torch.equal(model.target_positions.learned, tensors["decoder.embed_positions.weight"][2:])


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"arch": "fconv"}, "arch is 'fconv', which is not imported"),
        ({"arch": "transformer_lm"}, "arch is 'transformer_lm', which is not imported"),
        ({"layernorm_embedding": True}, "layernorm_embedding is True, which is not imported"),
        ({"decoder_normalize_before": True}, "norms or positions differ between encoder and decoder"),
        ({"activation_fn": "gelu_fast"}, "activation_fn is 'gelu_fast'"),
        ({"decoder_output_dim": 8}, "decoder_output_dim is 8"),
        ({"adaptive_softmax_cutoff": "10,20"}, "adaptive_softmax_cutoff is '10,20'"),
        ({"source_lang": None}, "does not say source_lang and target_lang"),
        ({"source_lang": "fr"}, "dict.fr.txt is missing"),
    ],
)
def test_fairseq_models_of_other_kinds_are_refused_by_name(tmp_path, draw, change, sentence):
    fairseq_folder(tmp_path / "model", draw, pre_norm=False)
    path = tmp_path / "model" / "checkpoint_best.pt"
    state = torch.load(path, weights_only=False)
    for name, value in change.items():
        setattr(state["args"], name, value)
    torch.save(state, path)
    with pytest.raises(ConfigError) as caught:
        import_model(tmp_path / "model", tmp_path / "run")
    assert sentence in str(caught.value)
    assert not (tmp_path / "run").exists()


# OpenNMT-py


def opennmt_folder(folder, draw, *, biases=True, share=False, start="<s>", newest=True, ends=False, **more):
    """Write a checkpoint as OpenNMT-py 3 does. Return all tensors, the generator's under its name."""
    special = ["<unk>", "<blank>", "<s>", "</s>"]
    vocabulary = {
        "src": [*special, *WORDS],
        "tgt": [*special, *(WORDS if share else WORTE)],
        "decoder_start_token": start,
    }
    tensors = OrderedDict()
    for side, count in (("encoder", LAYERS[0]), ("decoder", LAYERS[1])):
        size = len(vocabulary["src" if side == "encoder" else "tgt"])
        tensors[f"{side}.embeddings.make_embedding.emb_luts.0.weight"] = draw(size, WIDTH, spread=0.25)
        table = sinusoids(60, WIDTH, log=False, halves=False).float()
        tensors[f"{side}.embeddings.make_embedding.pe.pe"] = table[:, None]
        for number in range(count):
            at = f"encoder.transformer.{number}" if side == "encoder" else f"decoder.transformer_layers.{number}"
            for kind in ["self_attn"] + (["context_attn"] if side == "decoder" else []):
                for one in ("linear_keys", "linear_values", "linear_query", "final_linear"):
                    weight, bias = attention(draw)
                    tensors[f"{at}.{kind}.{one}.weight"] = weight
                    if biases:
                        tensors[f"{at}.{kind}.{one}.bias"] = bias
            for one in ["layer_norm"] if side == "encoder" else ["layer_norm_1", "layer_norm_2"]:
                tensors[f"{at}.{one}.weight"], tensors[f"{at}.{one}.bias"] = norm(draw)
            for one, shape in (("w_1", (HIDDEN, WIDTH)), ("w_2", (WIDTH, HIDDEN))):
                tensors[f"{at}.feed_forward.{one}.weight"] = draw(*shape)
                if biases:
                    tensors[f"{at}.feed_forward.{one}.bias"] = draw(shape[0], spread=0.1)
            at = f"{at}.feed_forward.layer_norm"
            tensors[f"{at}.weight"], tensors[f"{at}.bias"] = norm(draw)
        tensors[f"{side}.layer_norm.weight"], tensors[f"{side}.layer_norm.bias"] = norm(draw)
    table = tensors["decoder.embeddings.make_embedding.emb_luts.0.weight"]
    if share:
        tensors["encoder.embeddings.make_embedding.emb_luts.0.weight"] = table
    generator = {"weight": table if share else draw(*table.shape, spread=0.5), "bias": draw(len(table), spread=0.2)}
    every = {**tensors, **{f"generator.{name}": tensor for name, tensor in generator.items()}}
    reference = opennmt_reference(every, start=vocabulary["tgt"].index(start))
    if ends:
        let_outputs_end(reference, tensors["decoder.layer_norm.bias"], 3, sources(8, len(vocabulary["src"])))
    opt = argparse.Namespace(
        encoder_type="transformer", decoder_type="transformer", enc_layers=LAYERS[0], dec_layers=LAYERS[1], heads=HEADS,
        transformer_ff=HIDDEN, hidden_size=WIDTH, word_vec_size=WIDTH, position_encoding=True, dropout=[0.1],
        pos_ffn_activation_fn="relu", max_relative_positions=0, self_attn_type="scaled-dot", copy_attn=False, **more,
    )  # fmt: skip
    named = generator if newest else {f"0.{name}": tensor for name, tensor in generator.items()}
    folder.mkdir()
    torch.save(
        {"model": tensors, "generator": named, "vocab": vocabulary, "opt": opt, "optim": {}}, folder / "step_10.pt"
    )
    return every


def opennmt_reference(tensors, start):
    def pair(module):
        return tensors[f"{module}.weight"], tensors.get(f"{module}.bias")

    def names(side, number):
        at = f"encoder.transformer.{number}" if side == "encoder" else f"decoder.transformer_layers.{number}"
        order = ("linear_query", "linear_keys", "linear_values", "final_linear")
        return {
            "self": [f"{at}.self_attn.{one}" for one in order],
            "self norm": f"{at}.layer_norm" + ("" if side == "encoder" else "_1"),
            "cross": [f"{at}.context_attn.{one}" for one in order],
            "cross norm": f"{at}.layer_norm_2",
            "feed-forward": (f"{at}.feed_forward.w_1", f"{at}.feed_forward.w_2"),
            "feed-forward norm": f"{at}.feed_forward.layer_norm",
            "top": f"{side}.layer_norm",
        }

    table = tensors["decoder.embeddings.make_embedding.emb_luts.0.weight"]
    return Reference(
        linear=pair, norm=pair, names=names, layers=LAYERS, heads=HEADS,
        embeddings=(tensors["encoder.embeddings.make_embedding.emb_luts.0.weight"], table),
        output=(tensors["generator.weight"], tensors["generator.bias"]),
        positions=sinusoids(40, WIDTH, log=False, halves=False), pre_norm=True, eps=1e-6, activation="relu",
        scale=math.sqrt(WIDTH), start=table[start],
    )  # fmt: skip


@variants(
    {"plain": {}, "shared": {"biases": False, "share": True, "newest": False}, "eos": {"start": "</s>"}},
)
def test_an_opennmt_checkpoint_equals_the_reference(tmp_path, draw, count, options):
    tensors = opennmt_folder(tmp_path / "model", draw, ends=True, **options)
    eos_first = options.get("start") == "</s>"
    reference = opennmt_reference(tensors, start=3 if eos_first else 2)
    run = import_model(tmp_path / "model", tmp_path / "run")
    model = regard.load_model(run.path, device="cpu")
    assert model.config.tie == ("all" if options.get("share") else "none")
    # There, <unk>, <blank>, <s> and </s> are 0 to 3.
    special = {0: 0, 1: BOS, 2: 3, 3: EOS} if eos_first else {0: 0, 1: 3, 2: BOS, 3: EOS}
    source, target = (
        len(tensors[f"{side}.embeddings.make_embedding.emb_luts.0.weight"]) for side in ("encoder", "decoder")
    )
    here = {"source": {**special, **{id: id for id in range(4, source)}}}
    here["target"] = {**special, **{id: id for id in range(4, target)}}
    compare(
        run, reference, sources(count, source), here=here, to_source=lambda words: words, ending=[EOS],
        never=[1] if eos_first else [2], eos=3,
    )  # fmt: skip
    # Attention looks at the words, and there is no EOS to look at.
    trace = regard.look(run.path, "w3 w4 w5", beam=2)
    assert trace.source.tokens == ["w3", "w4", "w5"]
    assert trace.layers("encoder-decoder")[0].weights.shape[-1] == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder_type": "brnn"}, "encoder_type is 'brnn', which is not imported"),
        ({"max_relative_positions": -1}, "max_relative_positions is -1, which is not imported"),
        ({"pos_ffn_activation_fn": "gated-silu"}, "pos_ffn_activation_fn is 'gated-silu'"),
        ({"copy_attn": True}, "copy_attn is True"),
        ({"layer_norm": "rms"}, "layer_norm is 'rms'"),
    ],
)
def test_opennmt_models_of_other_kinds_are_refused_by_name(tmp_path, draw, change, sentence):
    opennmt_folder(tmp_path / "model", draw)
    path = tmp_path / "model" / "step_10.pt"
    state = torch.load(path, weights_only=False)
    for name, value in change.items():
        setattr(state["opt"], name, value)
    torch.save(state, path)
    with pytest.raises(ConfigError) as caught:
        import_model(tmp_path / "model", tmp_path / "run")
    assert sentence in str(caught.value)


# Marian


def marian_folder(folder, draw, *, tied="all", ends=False, **changes):
    """Write model.npz as Marian does, vocab.yml and decoder.yml. Return the arrays as tensors."""
    vocabulary = ["</s>", "<unk>", *WORDS]
    arrays = {}
    for side, count in (("encoder", LAYERS[0]), ("decoder", LAYERS[1])):
        if tied != "all":
            arrays[f"{side}_Wemb"] = draw(len(vocabulary), WIDTH, spread=0.25)
        for number in range(1, count + 1):
            at = f"{side}_l{number}"
            for kind in ["self"] + (["context"] if side == "decoder" else []):
                for one in "qkvo":
                    arrays[f"{at}_{kind}_W{one}"], arrays[f"{at}_{kind}_b{one}"] = (
                        draw(WIDTH, WIDTH, spread=0.5),
                        draw(1, WIDTH, spread=0.1),
                    )
                arrays[f"{at}_{kind}_Wo_ln_scale"], arrays[f"{at}_{kind}_Wo_ln_bias"] = (
                    one[None] for one in norm(draw)
                )
            arrays[f"{at}_ffn_W1"], arrays[f"{at}_ffn_b1"] = draw(WIDTH, HIDDEN), draw(1, HIDDEN, spread=0.1)
            arrays[f"{at}_ffn_W2"], arrays[f"{at}_ffn_b2"] = draw(HIDDEN, WIDTH), draw(1, WIDTH, spread=0.1)
            arrays[f"{at}_ffn_ffn_ln_scale"], arrays[f"{at}_ffn_ffn_ln_bias"] = (one[None] for one in norm(draw))
    if tied == "all":
        arrays["Wemb"] = draw(len(vocabulary), WIDTH, spread=0.25)
    else:
        arrays["decoder_ff_logit_out_W"] = draw(WIDTH, len(vocabulary), spread=0.5)
    arrays["decoder_ff_logit_out_b"] = draw(1, len(vocabulary), spread=0.2)
    last = f"decoder_l{LAYERS[1]}_ffn_ffn_ln_bias"
    if ends:
        let_outputs_end(marian_reference(arrays), arrays[last][0], 0, [[*words, 0] for words in sources(8, 28, low=2)])
    settings = {
        "type": "transformer", "dim-emb": WIDTH, "enc-depth": LAYERS[0], "dec-depth": LAYERS[1],
        "transformer-heads": HEADS, "transformer-dim-ffn": HIDDEN, "transformer-ffn-activation": "swish",
        "transformer-preprocess": '""', "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": "false",
        "tied-embeddings-all": str(tied == "all").lower(), "tied-embeddings": "false", "version": "v1.9.0", **changes,
    }  # fmt: skip
    text = "".join(f"{key}: {value}\n" for key, value in settings.items()) + "dim-vocabs:\n  - 28\n  - 28\n\0"
    folder.mkdir()
    plain = {name: tensor.numpy() for name, tensor in arrays.items()}
    np.savez(folder / "model.npz", **plain, **{"special:model.yml": np.frombuffer(text.encode(), dtype=np.int8)})
    (folder / "vocab.yml").write_text(
        "".join(f'"{one}": {id}\n' if id % 2 else f"{one}: {id}\n" for id, one in enumerate(vocabulary))
    )
    (folder / "decoder.yml").write_text(
        "relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n  - vocab.yml\n  - vocab.yml\nbeam-size: 3\nnormalize: 0.7\n"
    )
    return arrays


def marian_reference(arrays):
    def linear(module):
        return arrays[module].t(), arrays[module.replace("_W", "_b")][0]

    def layer_norm(module):
        return arrays[f"{module}_ln_scale"][0], arrays[f"{module}_ln_bias"][0]

    def names(side, number):
        at = f"{side}_l{(number or 0) + 1}"
        return {
            "self": [f"{at}_self_W{one}" for one in "qkvo"],
            "self norm": f"{at}_self_Wo",
            "cross": [f"{at}_context_W{one}" for one in "qkvo"],
            "cross norm": f"{at}_context_Wo",
            "feed-forward": (f"{at}_ffn_W1", f"{at}_ffn_W2"),
            "feed-forward norm": f"{at}_ffn_ffn",
        }

    tables = [arrays.get("Wemb", arrays.get(f"{side}_Wemb")) for side in ("encoder", "decoder")]
    output = arrays["Wemb"] if "Wemb" in arrays else arrays["decoder_ff_logit_out_W"].t()
    return Reference(
        linear=linear, norm=layer_norm, names=names, layers=LAYERS, heads=HEADS, embeddings=tables,
        output=(output, arrays["decoder_ff_logit_out_b"][0]), positions=sinusoids(40, WIDTH, log=True, halves=True),
        pre_norm=False, eps=1e-6, activation="swish", scale=math.sqrt(WIDTH), start=torch.zeros(WIDTH),
    )  # fmt: skip


@variants({"none": {"tied": "none"}, "all": {"tied": "all"}})
def test_a_marian_model_equals_the_reference(tmp_path, draw, count, options):
    arrays = marian_folder(tmp_path / "model", draw, ends=True, **options)
    run = import_model(tmp_path / "model", tmp_path / "run")
    size = 2 + len(WORDS)
    here = {side: {0: EOS, 1: 0, **{id: id + 1 for id in range(2, size)}} for side in ("source", "target")}
    compare(
        run, marian_reference(arrays), sources(count, size, low=2), here=here, to_source=lambda words: [*words, 0],
        ending=[EOS], never=[], eos=0,
    )  # fmt: skip
    decode = RunFolder(run.path).recipe().decode
    assert (decode.beam, decode.length_penalty, decode.length_penalty_kind) == (3, 0.7, "power")


def test_a_column_that_marian_does_not_have_takes_no_part_in_the_softmax(tmp_path, draw):
    marian_folder(tmp_path / "model", draw)
    model = regard.load_model(import_model(tmp_path / "model", tmp_path / "run").path, device="cpu")
    with torch.no_grad():
        logits = model.decode(Ragged.from_lists([[BOS, 5]]), model.encode(Ragged.from_lists([[7, EOS]])))
    assert logits.softmax(-1)[:, BOS].tolist() == [0.0, 0.0]
    assert torch.equal(model.target_embedding[BOS], torch.zeros(WIDTH))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"type": "s2s"}, "type is 's2s', which is not imported"),
        ({"transformer-preprocess": "n"}, "transformer-preprocess is 'n', which is not imported"),
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg is 'rnn'"),
        ({"transformer-postprocess-emb": "nd"}, "transformer-postprocess-emb is 'nd'"),
        ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation is 'gelu'"),
        ({"transformer-heads": "many"}, "transformer-heads is 'many'; it must be a whole number"),
    ],
)
def test_marian_models_of_other_kinds_are_refused_by_name(tmp_path, draw, change, sentence):
    marian_folder(tmp_path / "model", draw, **change)
    with pytest.raises(ConfigError) as caught:
        import_model(tmp_path / "model", tmp_path / "run")
    assert sentence in str(caught.value)


def test_an_array_of_objects_is_not_read(tmp_path, draw):
    marian_folder(tmp_path / "model", draw)
    path = tmp_path / "model" / "model.npz"
    arrays = dict(np.load(path))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays, hostile=np.array([{"a": 1}], dtype=object))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ConfigError, match=r"hostile\.npy is not an array of numbers"):
        import_model(tmp_path / "model", tmp_path / "run")
