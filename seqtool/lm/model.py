"""`LanguageModel`: what people call, the same for every language model.

    lm = seqtool.load("runs/lm")             a trained model, a saved mixture, an ARPA file
    lm.score("the old dog sleeps")           nats of a sentence, its end included
    lm.surprisal("the old dog sleeps")       its words, each with its surprisal in bits
    lm.next_words("the old")                 what comes next, and with which probability
    lm.generate("the old", seed=1)           a text
    lm.perplexity(["a sentence", "..."])     of sentences, or of a file
    lm.states("the old dog sleeps")          a vector for each word, of a network

A string is always the text itself. Log-probabilities are nats, surprisals are bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from seqtool.core.arrays import Floats
from seqtool.core.errors import ConfigError
from seqtool.core.one_line import OneLine
from seqtool.core.vocabulary import EOS_ID
from seqtool.lm import protocol
from seqtool.lm.evaluation import check_log_probs, encode_text, evaluate_lm
from seqtool.lm.protocol import sentence_begins

if TYPE_CHECKING:
    from seqtool.lm.states import Pool
    from seqtool.lm.words import Word


class LanguageModel(protocol.LanguageModel, OneLine):
    """A language model: an n-gram model, a network, or a mixture of such.

    A new kind of model says how it goes through a text, which the protocol of this name asks for,
    and gets the rest from here.
    """

    shown = ("kind", "tokenizer.unit", "tokenizer.vocabulary")

    @overload
    def score(self, text: str, *, end: bool = True) -> float: ...  # type: ignore[overload-overlap]
    @overload
    def score(self, text: Sequence[str], *, end: bool = True) -> list[float]: ...
    def score(self, text: str | Sequence[str], *, end: bool = True) -> float | list[float]:
        """Return the log-probability of a sentence, or of each of several, in nats.

        Each is read from the beginning of a text, whatever stands beside it. The surprisal of the
        whole in bits is `-score / math.log(2)`. Unknown words count as `<unk>`.

        Args:
            text: a sentence, or several; without line ends inside. It may be empty.
            end: that the sentence ends there counts, too; without it, the string is the beginning
                of some sentence.

        Raises:
            DataError: a string with a line end inside, or that cannot be encoded.
            ModelError: the model gives something that is no probability.
        """
        scores = self._scores([text] if isinstance(text, str) else text, end)
        return next(scores) if isinstance(text, str) else list(scores)

    def _scores(self, sentences: Sequence[str], end: bool) -> Iterator[float]:
        for block, _ in encode_text(sentences, self.tokenizer):
            texts, resets = [block], True
            if self.adaptations:  # it cannot forget within a text, so each is a text of its own
                texts, resets = np.split(block, sentence_begins(block)[1:]), False
            for ids in texts:
                (scores,) = self.score_ids([ids], reset_state=resets)
                log_probs = np.asarray(scores.log_probs, np.float64)
                check_log_probs(log_probs)
                if not end:
                    log_probs = np.where(ids == EOS_ID, 0.0, log_probs)
                yield from np.add.reduceat(log_probs, sentence_begins(ids)).tolist()

    @overload
    def surprisal(self, text: str, **options: Any) -> list[Word]: ...
    @overload
    def surprisal(self, text: Sequence[str], **options: Any) -> list[list[Word]]: ...
    def surprisal(self, text: str | Sequence[str], **options: Any) -> list[Word] | list[list[Word]]:
        """Return the words of a sentence with their surprisals in bits, whatever the model's unit.

        A list of words is also what `pandas.DataFrame` takes: a row for each. Each sentence begins
        anew unless the state is carried on; a line end inside counts as a space.

        Args:
            text: a sentence, or several, each of which gives a list.
            options: those of `seqtool.lm.words.score_words`: `entropy=True` adds the entropy of the
                next word, `carry_state=True` reads the sentences as one text.

        Raises:
            ConfigError: the model learns from the text, and each sentence is to begin anew.
            DataError: a sentence that the model cannot read.
        """
        from seqtool.lm.words import score_words

        words = score_words(self, [text] if isinstance(text, str) else text, **options)
        return next(words) if isinstance(text, str) else list(words)

    def next_words(
        self, prompt: str = "", top: int = 10, *, allow_unknown: bool = False
    ) -> list[tuple[str, float]]:
        """Return the most probable continuations of a prompt by one unit, and their probabilities.

        The units are the model's own: words, characters (a space is one), bytes, or pieces of words
        whose first sign is "▁" where a word begins. `</s>` is the end of the sentence.

        Args:
            prompt: the beginning of a text; a line end in it ends a sentence.
            top: how many, the most probable first.
            allow_unknown: read unknown words of the prompt as `<unk>`.

        Raises:
            ConfigError: none is asked for.
            PromptError: a prompt that the model cannot read.
        """
        from seqtool.lm.sampling import begin, largest, read_prompt

        if top < 1:
            raise ConfigError(f"top is {top}, but must be at least 1", hint="ask for more")
        ids, _ = read_prompt(self.tokenizer, prompt, allow_unknown=allow_unknown)
        log_probs_V = np.asarray(self.next_log_probs(begin(self, ids, 1))[0], np.float64)
        best = largest(log_probs_V, top)
        words = self.tokenizer.vocabulary.decode(best)
        return list(zip(words, np.exp(log_probs_V[best]).tolist(), strict=True))

    def generate(self, prompt: str = "", **options: Any) -> str:
        """Return a text that begins with a prompt.

        Args:
            prompt: the beginning of the text.
            options: those of `seqtool.generate` but `num`: `seed`, `max_tokens`, `temperature`,
                `top_k`, `top_p`, `beam` and so on.

        Raises:
            ConfigError: an impossible option, or options that exclude each other.
            PromptError: a prompt that the model cannot read.
        """
        from seqtool.lm.sampling import generate

        return "".join(piece.text for piece in generate(self, prompt, num=1, **options))

    def perplexity(self, text: str | Sequence[str] | Path, *, reset_state: bool = False) -> float:
        """Return the perplexity of a text, per unit of the model, `</s>` and unknown words counted.

        `seqtool.evaluate_lm` gives all other figures, too.

        Args:
            text: a string of lines, sentences, or a `Path`: a file, a directory, or a prepared
                corpus.
            reset_state: forget the text before each sentence, for models that carry it on.

        Raises:
            DataError: a text that cannot be used, or an empty one.
        """
        source: dict[str, Any] = {"inputs": text} if isinstance(text, Path) else {"text": text}
        return evaluate_lm(self, **source, reset_state=reset_state).perplexity

    @overload
    def states(self, text: str, *, layer: int | None = None, pool: Pool = "last") -> Floats: ...  # type: ignore[overload-overlap]
    @overload
    def states(
        self, text: Sequence[str], *, layer: int | None = None, pool: Pool = "last"
    ) -> list[Floats]: ...
    def states(
        self, text: str | Sequence[str], *, layer: int | None = None, pool: Pool = "last"
    ) -> Floats | list[Floats]:
        """Return the state of a network after each word of a sentence, [words, H]; see `lm.states`.

        Args:
            text: a sentence, or several, each of which gives an array.
            layer: from 1, or 0 for the embedding; the last one when not given.
            pool: the state after the "last" unit of a word, or the "mean" over all of its units.

        Raises:
            ConfigError: there is no such layer.
            DataError: a string with a line end inside.
            ModelError: the model has no states.
        """
        from seqtool.lm.states import word_states

        lines = [text] if isinstance(text, str) else text
        vectors = (each.vectors for each in word_states(self, lines, layer=layer, pool=pool))
        return next(vectors) if isinstance(text, str) else list(vectors)
