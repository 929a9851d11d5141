"""The tokenizer and the stand-in for a model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab_manager.sim.tokens import (
    END_OF_TEXT,
    Detokenizer,
    Sampler,
    decode,
    encode,
    encode_chat,
    fingerprint,
    pack,
)

OLD, NEW = fingerprint("old"), fingerprint("new")


def output(prompt: str, weights: int, tokens: int, *, noise: int = 0) -> list[int]:
    """Ids of an output that does not end by itself."""
    sampler = Sampler(noise=noise, ends_every=320)
    sampler.read(prompt)
    return [sampler.draw(weights, may_end=False)[0] for _ in range(tokens)]


def test_ids_are_those_of_the_tiny_model() -> None:
    """Printable bytes first, from ``!``; a message costs its role, its text and five tokens."""
    assert [ord(token) for token in encode('"#$Hello')] == [1, 2, 3, 39, 68, 75, 75, 78]
    assert len(encode_chat([("user", "hi")])) == 21
    assert encode_chat([("user", "hi")])[0] == chr(257)


@given(st.text())
def test_text_survives(text: str) -> None:
    """Encoding and decoding are inverse."""
    assert decode(encode(text)) == text


def test_ids_outside_unicode_are_outside_every_vocabulary() -> None:
    """They do not raise; they become the highest id there is."""
    assert [ord(token) for token in pack([1, -1, 2**40])] == [1, 0x10FFFF, 0x10FFFF]


def test_greedy_output_depends_on_weights_and_prompt_alone() -> None:
    """Equal for equal input, different for other weights or another prompt."""
    assert output("prompt", OLD, 20) == output("prompt", OLD, 20)
    assert output("prompt", OLD, 20) != output("prompt", NEW, 20)
    assert output("prompt", OLD, 20) != output("promqt", OLD, 20)
    assert output("prompt", OLD, 20) != output("prompt", OLD, 20, noise=1)


def test_an_output_continues_its_own_beginning() -> None:
    """As with a model: prompt plus the first tokens gives the rest."""
    whole = output("prompt", OLD, 20)
    cut = next(length for length in range(5, 20) if _whole_characters(whole[:length]))
    assert output("prompt" + pack(whole[:cut]), OLD, 20 - cut) == whole[cut:]


def test_output_is_text() -> None:
    """Multi-byte characters come whole, so the text has no replacement characters."""
    text = decode(pack(output("prompt", OLD, 400)))
    assert "\ufffd" not in text.rstrip("\ufffd")
    assert not text.isascii()


def test_an_output_may_end() -> None:
    """With ``ends_every`` 1 at once, when it may."""
    sampler = Sampler(noise=0, ends_every=1)
    assert sampler.draw(OLD, may_end=True)[0] == END_OF_TEXT
    assert sampler.draw(OLD, may_end=False)[0] != END_OF_TEXT


def test_alternatives_begin_with_the_token() -> None:
    """Sorted, distinct, and none likelier than what was drawn."""
    sampler = Sampler(noise=0, ends_every=320)
    token, value = sampler.draw(OLD, may_end=False)
    alternatives = sampler.alternatives(OLD, token, value, 5)
    assert alternatives[0] == (value, token)
    assert [value for value, _ in alternatives] == sorted((value for value, _ in alternatives), reverse=True)
    assert len({token for _, token in alternatives}) == 5


def test_an_unfinished_character_is_held_back() -> None:
    """It appears when it is complete, or as a replacement when the output ends."""
    detokenizer = Detokenizer()
    first, second = (ord(token) for token in encode("é"))
    detokenizer.feed(first)
    assert detokenizer.text == ""
    detokenizer.feed(second)
    assert detokenizer.text == "é"
    detokenizer.feed(first)
    detokenizer.finish()
    assert detokenizer.text == "é\ufffd"


def _whole_characters(ids: list[int]) -> bool:
    return "\ufffd" not in decode(pack(ids))
