"""A byte-level tokenizer and a stand-in for a language model: text to token ids and back, and which token comes next.

The vocabulary is the one of the tiny model of the tests on real SGLang: ids 0 to 255 are single bytes, in the order of
the characters that byte-level BPE shows for them, and 256 to 259 are special tokens. Ids above decode to nothing.

The "model" is a hash. The next token depends on the weights and on the whole sequence so far, and on nothing else at
temperature 0: equal prompts give equal text, other weights give other text, and continuing a prefix of an output gives
the rest of that output, as with a real model.
"""

from __future__ import annotations

import codecs
import zlib
from dataclasses import dataclass, field

BYTES = 256
SPECIAL_TOKENS = {"<|endoftext|>": 256, "<|im_start|>": 257, "<|im_end|>": 258, "<pad>": 259}
END_OF_TEXT = SPECIAL_TOKENS["<|im_end|>"]

_ALPHABET = "etaoinshrdlucmfwyp etaoinshr etaoinshrd ETAOIN.,;:0123456789\n" + "éßñüжω語猫🙂🚀"
_MASK = (1 << 64) - 1
_LAST = 0x10FFFF


def _byte_order() -> list[int]:
    """Byte values in token id order: printable ones first, as byte-level BPE sorts its alphabet."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return printable + [byte for byte in range(BYTES) if byte not in set(printable)]


_BYTE_OF_ID = bytes(_byte_order())
_ID_OF_BYTE = bytes(_BYTE_OF_ID.index(byte) for byte in range(BYTES))
_NEWLINE = chr(_ID_OF_BYTE[ord("\n")])


def encode(text: str) -> str:
    """Tokens of a text, packed; special tokens are not recognised in it (see ``encode_chat``)."""
    return text.encode("utf-8", "surrogatepass").translate(_ID_OF_BYTE).decode("latin-1")


def encode_chat(messages: list[tuple[str, str]]) -> str:
    """Tokens of ``(role, content)`` pairs in the chat template of the tiny model, packed, ready for the answer."""
    start, end = chr(SPECIAL_TOKENS["<|im_start|>"]), chr(SPECIAL_TOKENS["<|im_end|>"])
    turns = [f"{start}{encode(role)}{_NEWLINE}{encode(content)}{end}{_NEWLINE}" for role, content in messages]
    return f"{''.join(turns)}{start}{encode('assistant')}{_NEWLINE}"


def pack(ids: list[int]) -> str:
    """A token sequence as text, one code point per id (why: see ``kv``).

    An id that is no code point becomes the last code point: like it, it is outside every vocabulary.
    """
    try:
        return "".join(map(chr, ids))
    except (ValueError, OverflowError):
        return "".join(chr(token) if 0 <= token <= _LAST else chr(_LAST) for token in ids)


def decode(tokens: str) -> str:
    """The text of a packed sequence."""
    return b"".join(token_bytes(ord(token)) for token in tokens).decode("utf-8", "replace")


def token_bytes(token: int) -> bytes:
    """The bytes that a token stands for; special tokens and unused ids have none."""
    return _BYTE_OF_ID[token : token + 1] if token < BYTES else b""


def token_text(token: int) -> str:
    """A token alone as text; part of a multi-byte character shows as the replacement character."""
    return token_bytes(token).decode("utf-8", "replace")


class Detokenizer:
    """Text of a growing output. An unfinished character is held back until it is complete or the output ends."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.text = ""

    def feed(self, token: int) -> None:
        """Add one token."""
        self.text += self._decoder.decode(token_bytes(token))

    def finish(self) -> None:
        """The output ended: what was held back becomes replacement characters."""
        self.text += self._decoder.decode(b"", final=True)


@dataclass
class Sampler:
    """Draws the tokens of one request.

    ``noise`` is 0 for greedy output; any other value makes another sample of the same distribution.
    """

    noise: int
    ends_every: int
    _state: int = 0
    _unfinished: bytes = field(default=b"")

    def read(self, ids: str) -> None:
        """Take in the prompt (packed). Must come before the first draw."""
        self._state = zlib.crc32(ids.encode("utf-32-le", "surrogatepass"), self._state)

    def draw(self, weights: int, *, may_end: bool) -> tuple[int, float]:
        """The next token and its log-probability. ``weights`` identifies the weights that compute it."""
        value = mix(self._state ^ weights ^ self.noise)
        if self._unfinished:
            byte, self._unfinished = self._unfinished[0], self._unfinished[1:]
            token = _ID_OF_BYTE[byte]
        elif may_end and value % self.ends_every == 0:
            token = END_OF_TEXT
        else:
            first, *rest = _ALPHABET[(value >> 16) % len(_ALPHABET)].encode()
            token, self._unfinished = _ID_OF_BYTE[first], bytes(rest)
        self.read(chr(token))
        return token, logprob(value)

    def alternatives(self, weights: int, token: int, value: float, wanted: int) -> list[tuple[float, int]]:
        """The ``wanted`` likeliest tokens with their log-probabilities, the drawn one first."""
        others = ((token + 1 + step * 7) % BYTES for step in range(max(wanted - 1, 0)))
        seed = mix(self._state ^ weights)
        rest = [(value - 0.1 - (mix(seed + other) % 1000) / 1000, other) for other in others]
        return sorted([(value, token), *rest], reverse=True)[:wanted]


def logprob(value: int) -> float:
    """A log-probability in [-6, 0) made of a hash."""
    return -(1 + value % 6000) / 1000


def mix(value: int) -> int:
    """The finaliser of splitmix64: 64 well-mixed bits of a number."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def fingerprint(text: str) -> int:
    """A number for a text, the same in every process (``hash`` is not)."""
    return mix(zlib.crc32(text.encode("utf-8", "surrogatepass")))
