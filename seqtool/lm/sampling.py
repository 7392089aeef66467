"""Text from any language model, by chance or by search.

Shapes: N samples, or live hypotheses of a beam, and V symbols. Log-probabilities are nats.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqtool.core.arrays import Doubles, Longs, Reals
from seqtool.core.config import Config, setting
from seqtool.core.errors import ConfigError, DataError, ModelError, PromptError
from seqtool.core.reading import whole_text
from seqtool.core.units import LN_10
from seqtool.core.vocabulary import EOS_ID, UNK, UNK_ID, Vocabulary
from seqtool.lm.protocol import LanguageModel, State, refuse_other_than_model
from seqtool.text.tokenizers import StreamDecoder, Tokenizer

# Sums of float probabilities miss a bound such as 0.5 + 0.3 = 0.8 by their last digits.
NUCLEUS_SLACK = 1e-9
WORDS_SHOWN = 5


@dataclass(frozen=True)
class GenerateConfig(Config):
    """How text is made from a model."""

    num: int = setting(1, "how many samples; of a beam, of the best", minimum=1)
    max_tokens: int = setting(100, "the longest continuation, in tokens", minimum=1)
    temperature: float = setting(
        1.0, "below 1 safer, above 1 wilder, 0 always the likeliest", minimum=0
    )
    top_k: int | None = setting(None, "draw from this many likeliest tokens only", minimum=1)
    top_p: float | None = setting(
        None, "draw from the fewest tokens whose probability reaches this", above=0, maximum=1
    )
    beam: int | None = setting(None, "beam search with N hypotheses instead of chance", minimum=1)
    stop_at_sentence_end: bool = setting(True, "stop at the end of the sentence, or go on")
    generate_unk: bool = setting(False, "let the model write <unk>")

    def check(self) -> None:
        """Refuse chance and search together, and chance where nothing is drawn."""
        is_search = self.beam is not None
        if is_search or not self.temperature:
            cuts = {"top-k": self.top_k, "top-p": self.top_p}
            if is_search:
                cuts = {"temperature": self.temperature != 1, **cuts}
            what, drop = ("beam search", "--beam") if is_search else ("temperature 0", "it")
            if names := " and ".join(name for name, value in cuts.items() if value):
                raise ConfigError(
                    f"{what} draws nothing by chance, so {names} cannot apply",
                    hint=f"drop {drop}, or drop {names}",
                )
        if self.beam is not None and self.num > self.beam:
            raise ConfigError(
                f"num is {self.num}, but a beam of {self.beam} ends with {self.beam} texts at most",
                hint=f"give --beam {self.num} or more",
            )


class Piece(NamedTuple):
    """The next part of one sample, as soon as it is known.

    Attributes:
        sample: which sample, from 0.
        text: what to append to the text; empty while a character or a space is incomplete.
        token: the id of the generated token; None for the prompt and for a rest of text.
        log_prob: nats of the token under the model itself, before temperature, top-k and top-p.
    """

    sample: int
    text: str
    token: int | None = None
    log_prob: float = 0.0


@dataclass(frozen=True)
class Sample:
    """One generated text.

    Attributes:
        text: the prompt and its continuation.
        tokens: the symbols of the continuation, a final `</s>` included.
        log10_probability: of the continuation given the prompt, under the model itself.
    """

    text: str
    tokens: tuple[str, ...]
    log10_probability: float


def generate(
    model: LanguageModel,
    prompt: str = "",
    *,
    seed: int | None = None,
    allow_unknown: bool = False,
    **settings: Any,
) -> Iterator[Piece]:
    """Continue a prompt, token by token.

    The texts of a sample's pieces, joined, are the prompt and its continuation as the model's
    tokenizer decodes them. The same seed gives the same samples, and sample i does not depend on
    how many are drawn. With `beam`, the `num` most probable texts that the search finds come
    instead, the best first.

    Args:
        model: any language model.
        prompt: the beginning of the text; a newline in it ends a sentence.
        seed: None draws a new one.
        allow_unknown: read unknown words of the prompt as `<unk>`.
        settings: those of `GenerateConfig`, such as `num`, `max_tokens`, `temperature`, `beam`.

    Raises:
        ConfigError: an impossible option, or options that exclude each other.
        PromptError: a prompt that the model cannot read.
    """
    refuse_other_than_model(model)
    config = GenerateConfig(**settings)
    if seed is not None and seed < 0:
        raise ConfigError(f"seed is {seed}, but must be at least 0", hint="change --seed")
    prompt_ids, echo = read_prompt(model.tokenizer, prompt, allow_unknown=allow_unknown)
    # Errors above come now, not when the first piece is asked for.
    if config.beam is None:
        steps = _draw(model, prompt_ids, config, seed)
    else:
        best = beam_search(model, begin(model, prompt_ids, 1), config)
        steps = (
            (place, *step)
            for place, hypothesis in enumerate(best)
            for step in zip(hypothesis.tokens, hypothesis.log_probs, strict=True)
        )
    return _decode(model.tokenizer, prompt_ids, echo, steps, config)


def collect(pieces: Iterable[Piece], vocabulary: Vocabulary) -> list[Sample]:
    """Join the pieces of each sample."""
    samples: dict[int, list[Piece]] = {}
    for piece in pieces:
        samples.setdefault(piece.sample, []).append(piece)
    return [
        Sample(
            text="".join(piece.text for piece in own),
            tokens=tuple(vocabulary.decode(p.token for p in own if p.token is not None)),
            log10_probability=math.fsum(piece.log_prob for piece in own) / LN_10,
        )
        for _, own in sorted(samples.items())
    ]


def read_prompt(
    tokenizer: Tokenizer, prompt: str, *, allow_unknown: bool
) -> tuple[list[int], str | None]:
    """Return the prompt's ids and, where decoding them would not give it back, its text.

    Raises:
        PromptError: the model cannot read it, or knows a word of it only as `<unk>`.
    """
    if not isinstance(prompt, str):
        raise TypeError(f"expected a prompt as a string, not {prompt!r}")
    ids: list[int] = []
    lines: list[str] = []
    unknown: dict[str, None] = {}
    try:
        for line in whole_text(prompt, "the prompt").replace("\r\n", "\n").split("\n"):
            line_ids, tokens = tokenizer.encode(line).tolist(), tokenizer.tokens(line)
            ids += [EOS_ID, *line_ids] if lines else line_ids
            lines.append((" " if tokenizer.unit == "word" else "").join(tokens))
            pairs = zip(tokens, line_ids, strict=True)
            unknown |= dict.fromkeys(token for token, i in pairs if i == UNK_ID and token != UNK)
    except DataError as error:
        message = error.message.replace("the text", "the prompt")
        raise PromptError(message, hint="leave it out") from error
    if unknown and not allow_unknown:
        raise _unknown_words(tokenizer, list(unknown))
    # of lines that come from their ends, an unknown word of the prompt is shown as <unk>
    return ids, "\n".join(lines) if unknown and not tokenizer.reverse else None


def _unknown_words(tokenizer: Tokenizer, unknown: Sequence[str]) -> PromptError:
    noun, vocabulary = "words" if tokenizer.unit == "word" else "characters", tokenizer.vocabulary
    more = f" and {len(unknown) - WORDS_SHOWN} more" if len(unknown) > WORDS_SHOWN else ""
    shown = unknown[:WORDS_SHOWN]
    near = [
        f"for {word!r} perhaps {' or '.join(names)}"
        for word in shown
        if noun == "words" and (names := vocabulary.nearest(word))
    ]
    hint = f"use known {noun}{' (' + '; '.join(near) + ')' if near else ''}"
    if all(word.lower() in vocabulary for word in unknown):
        hint = "type the prompt in lower case, as the model's text was"
    return PromptError(
        f"the prompt has {noun} outside the model's vocabulary: "
        f"{', '.join(map(repr, shown))}{more}",
        hint=f"{hint}, or read them as <unk> with --allow-unknown",
    )


def begin(model: LanguageModel, prompt_ids: Sequence[int], num: int) -> State:
    """Return `num` hypotheses that have read the prompt, which is read once."""
    state = model.start(1)
    for token in prompt_ids:
        state = model.advance(state, np.array([token], dtype=np.int32))
    return state[np.zeros(num, dtype=np.intp)]


def largest(values_V: Doubles, num: int) -> Longs:
    """Return the indices of the `num` largest values, falling; ties by the lower index."""
    if num < len(values_V):
        threshold = np.partition(values_V, len(values_V) - num)[len(values_V) - num]
        candidates = np.flatnonzero(values_V >= threshold)
    else:
        candidates = np.arange(len(values_V))
    order = np.argsort(-values_V[candidates], kind="stable")
    return candidates[order][:num]


def _only_unk() -> ModelError:
    what = "the model offers nothing but <unk> as the next token"
    return ModelError(what, hint="allow it with --generate-unk")


def next_distribution(
    log_probs_V: Reals,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generate_unk: bool = True,
) -> Doubles:
    """Return the probabilities [V] that the next symbol is drawn from.

    The options apply in this order: `<unk>` loses its mass, temperature, top-k, top-p; the rest is
    normalised again after each. Of equally probable symbols the one with the lower id comes first.

    Raises:
        ModelError: only `<unk>` has any probability, and it may not be generated.
    """
    log_probs = np.array(log_probs_V, dtype=np.float64)
    if not generate_unk:
        log_probs[UNK_ID] = -np.inf
    best = float(log_probs.max())
    if best == -math.inf and not generate_unk:
        raise _only_unk()
    if not math.isfinite(best):
        raise ModelError(
            "the model's scores of the next token are no probabilities",
            hint="its weights are not sound: train the model, or write the ARPA file, again",
        )
    if temperature == 0:
        top_k, temperature = 1, 1.0
    with np.errstate(over="ignore"):  # a tiny temperature: to -inf, whose exp is the right 0
        probs = np.exp((log_probs - best) / temperature)
    if top_k is not None:
        probs = _only(probs, largest(log_probs, top_k))
    probs /= probs.sum()
    if top_p is not None and top_p < 1:
        order = largest(log_probs, len(probs))  # probabilities a rounding apart may tie
        num = int(np.searchsorted(np.cumsum(probs[order]), top_p - NUCLEUS_SLACK)) + 1
        probs = _only(probs, order[:num])
        probs /= probs.sum()
    return probs


def _only(probs: Doubles, kept: Longs) -> Doubles:
    result = np.zeros_like(probs)
    result[kept] = probs[kept]
    return result


def _draw(
    model: LanguageModel, prompt_ids: Sequence[int], config: GenerateConfig, seed: int | None
) -> Iterator[tuple[int, int, float]]:
    """Yield (sample, token, nats), all samples in step."""
    seeds = np.random.SeedSequence(seed).spawn(config.num)  # one stream each: i is i for any num
    generators = [np.random.default_rng(child) for child in seeds]
    names = ("temperature", "top_k", "top_p", "generate_unk")
    options = {name: getattr(config, name) for name in names}
    samples = np.arange(config.num)  # which sample each hypothesis is
    state = begin(model, prompt_ids, config.num)
    for step in range(config.max_tokens):
        log_probs_NV = model.next_log_probs(state)
        tokens = np.empty(len(samples), dtype=np.int32)
        for row, number in enumerate(samples.tolist()):
            cumulative = np.cumsum(next_distribution(log_probs_NV[row], **options))
            point = generators[number].random() * cumulative[-1]
            tokens[row] = np.searchsorted(cumulative, point, side="right")
            yield number, int(tokens[row]), float(log_probs_NV[row, tokens[row]])
        if config.stop_at_sentence_end:
            rows = np.flatnonzero(tokens != EOS_ID)
            if not len(rows):
                return
            if len(rows) < len(tokens):
                state, samples, tokens = state[rows], samples[rows], tokens[rows]
        if step + 1 < config.max_tokens:
            state = model.advance(state, tokens)


class Hypothesis(NamedTuple):
    """A continuation: its tokens, the log-probability of each, and their sum."""

    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]
    total: float


def beam_search(model: LanguageModel, state: State, config: GenerateConfig) -> list[Hypothesis]:
    """Return the `num` best continuations that the search finds, the best first.

    Each step keeps the `beam` best one-token extensions of all live hypotheses; those that end
    their sentence leave the beam. The search is over when no live hypothesis can overtake the `num`
    best finished ones, or at `max_tokens`, where unfinished ones count too. A beam of one is the
    greedy choice, one of V ** max_tokens is exhaustive.

    Args:
        model: any language model.
        state: one hypothesis of the model, which has read the prompt.
        config: settings, with a beam.

    Raises:
        ModelError: there is no continuation but `<unk>`.
    """
    assert config.beam is not None
    live = [Hypothesis((), (), 0.0)]
    finished: list[Hypothesis] = []
    for step in range(config.max_tokens):
        log_probs_NV = np.array(model.next_log_probs(state), dtype=np.float64)
        if not config.generate_unk:
            log_probs_NV[:, UNK_ID] = -np.inf
        totals = (np.array([h.total for h in live])[:, None] + log_probs_NV).ravel()
        best = largest(totals, config.beam)
        best = best[totals[best] > -np.inf]
        grown, rows = [], []
        for row, token in zip(*divmod(best, log_probs_NV.shape[1]), strict=True):
            log_prob = float(log_probs_NV[row, token])
            tokens, log_probs, total = live[row]
            hypothesis = Hypothesis((*tokens, int(token)), (*log_probs, log_prob), total + log_prob)
            if token == EOS_ID and config.stop_at_sentence_end:
                finished.append(hypothesis)
            else:
                grown.append(hypothesis)
                rows.append(row)
        live = grown
        if not live or step + 1 == config.max_tokens:
            break
        best_live = max(h.total for h in live)  # a total only falls
        if sum(h.total >= best_live for h in finished) >= config.num:
            live = []
            break
        last = np.array([h.tokens[-1] for h in live], dtype=np.int32)
        state = model.advance(state[np.array(rows, dtype=np.intp)], last)
    if not finished and not live:
        raise _only_unk()
    return sorted(finished + live, key=lambda h: -h.total)[: config.num]


def _decode(
    tokenizer: Tokenizer,
    prompt_ids: Sequence[int],
    echo: str | None,
    steps: Iterator[tuple[int, int, float]],
    config: GenerateConfig,
) -> Iterator[Piece]:
    """Turn tokens into text; the prompt goes through the decoder too, so that spaces are right."""
    decoders: dict[int, StreamDecoder] = {}
    for number, token, log_prob in steps:
        if number not in decoders:
            decoders[number] = tokenizer.decoder()
            decoded = "".join([decoders[number].push(i) for i in prompt_ids])
            yield Piece(number, decoded if echo is None else echo)
        is_end = token == EOS_ID and config.stop_at_sentence_end
        text = "" if is_end else decoders[number].push(token)
        yield Piece(number, text, token, log_prob)
    for number, decoder in decoders.items():
        if rest := decoder.flush():
            yield Piece(number, rest)
