#!/usr/bin/env python3
"""Write a tiny random Llama checkpoint with a byte-level tokenizer, offline, in a few seconds.

usage: make_tiny_model.py FOLDER [--seed N]

Run by the interpreter of the SGLang environment (torch, safetensors, tokenizers). The model has two layers, 115
thousand float32 parameters and a context of 2,048 tokens. A token id below 256 is one byte; 256 to 259 are the special
tokens; 260 to 319 pad the vocabulary to a multiple of 64 and decode to nothing useful. Equal seeds give equal files,
different seeds different greedy output: that is how a test sees that weights were replaced. The architecture is Llama
because SGLang can read single weights back (``/get_weights_by_name``) only from a few architectures.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<pad>")
END_OF_TURN = 258
PADDING = 259
VOCABULARY = 320
HIDDEN = 64
HEADS = 4
KEY_VALUE_HEADS = 2
HEAD = HIDDEN // HEADS
FEED_FORWARD = 2 * HIDDEN
LAYERS = 2
CONTEXT = 2048
# Standard deviation of the weights: large enough that greedy output does not collapse into one repeated token.
SPREAD = 0.06

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": FEED_FORWARD,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_VALUE_HEADS,
    "head_dim": HEAD,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": END_OF_TURN,
    "pad_token_id": PADDING,
    "torch_dtype": "float32",
}
TOKENIZER_CONFIG: dict[str, Any] = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": SPECIAL_TOKENS[2],
    "pad_token": SPECIAL_TOKENS[3],
    "clean_up_tokenization_spaces": False,
    "model_max_length": CONTEXT,
    "chat_template": CHAT_TEMPLATE,
}


def build_tokenizer() -> Tokenizer:
    """One token per byte, in the order of the byte-level alphabet, followed by the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: index for index, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL_TOKENS])
    return tokenizer


def build_weights(seed: int) -> dict[str, torch.Tensor]:
    """Random float32 weights under Hugging Face's Llama names; norms are ones."""
    generator = torch.Generator().manual_seed(seed)

    def random(rows: int, columns: int) -> torch.Tensor:
        return SPREAD * torch.randn(rows, columns, generator=generator)

    weights = {
        "model.embed_tokens.weight": random(VOCABULARY, HIDDEN),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": random(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.self_attn.q_proj.weight"] = random(HEADS * HEAD, HIDDEN)
        weights[f"{prefix}.self_attn.k_proj.weight"] = random(KEY_VALUE_HEADS * HEAD, HIDDEN)
        weights[f"{prefix}.self_attn.v_proj.weight"] = random(KEY_VALUE_HEADS * HEAD, HIDDEN)
        weights[f"{prefix}.self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD)
        weights[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.mlp.gate_proj.weight"] = random(FEED_FORWARD, HIDDEN)
        weights[f"{prefix}.mlp.up_proj.weight"] = random(FEED_FORWARD, HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = random(HIDDEN, FEED_FORWARD)
    return weights


def write_model(folder: Path, seed: int) -> None:
    """Write config, tokenizer and weights into ``folder``, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    documents = {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": END_OF_TURN, "pad_token_id": PADDING},
        "tokenizer_config.json": TOKENIZER_CONFIG,
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n")
    build_tokenizer().save(str(folder / "tokenizer.json"))
    save_file(build_weights(seed), str(folder / "model.safetensors"), metadata={"format": "pt"})


def main() -> None:
    """Entry point of the script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write_model(arguments.folder, arguments.seed)


if __name__ == "__main__":
    main()
