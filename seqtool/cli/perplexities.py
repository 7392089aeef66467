"""How `seqtool eval-ppl` shows what it measured: in the terminal, as JSON, and remarks on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.core.errors import counted
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.mixture.weights import MixtureEvaluation, Tuning
    from seqtool.lm.neural.dynamic import DynamicTuning
    from seqtool.lm.perplexity import Adaptation, LMEvaluation
    from seqtool.lm.protocol import LanguageModel

STATES = {"carried": "carried from sentence to sentence", "reset": "each sentence begins anew"}
HUGE = 1e9  # figures from here on are shown with an exponent
SYMBOLS = {"word": "words", "char": "characters", "byte": "bytes"}


@dataclass(frozen=True)
class Measured:
    """What was measured of a language model, and what was fitted before.

    Attributes:
        model: as it was measured.
        name: what it is called in the terminal.
        texts: that it was measured on.
        result: its figures.
        mixture: with those of its parts; None where it is no mixture.
        tuning: the choice of weights, and of a cache's settings; None without.
        dynamic: the choice of settings of dynamic evaluation, of each model that has some chosen.
    """

    model: LanguageModel
    name: str
    texts: Sequence[str]
    result: LMEvaluation
    mixture: MixtureEvaluation | None
    tuning: Tuning | None
    dynamic: Sequence[DynamicTuning]

    def to_json(self, split: str | None) -> dict[str, Any]:
        """Return what `--json` prints; `split` is that of the text."""
        content: dict[str, Any] = {"text": list(self.texts), "split": split}
        content |= self.result.to_json() if self.mixture is None else self.mixture.to_json()
        if self.tuning is not None:
            content["tuning"] = self.tuning.to_json()
        if self.dynamic:
            content["dynamic_tuning"] = [found.to_json() for found in self.dynamic]
        return content

    def show(self, *, to_stderr: bool) -> None:
        """Print the figures as aligned lines."""
        from seqtool.lm.protocol import carries_state

        rows = [("model", self.name)]
        if self.mixture is not None:
            rows += _mixture_rows(self.mixture, self.tuning)
        num_tried = 0 if self.tuning is None else self.tuning.num_tried
        rows += _adaptation_rows(self.result.adaptations, self.dynamic, num_tried)
        if carries_state(self.model):
            rows.append(("state", STATES[self.result.state]))
        show_figures(self.result, rows, " ".join(self.texts), to_stderr=to_stderr)

    def remarks(self) -> Iterator[str]:
        """Give what is to be said of the figures, as notes and warnings."""
        from seqtool.lm.ngram.model import lacks_unknown
        from seqtool.lm.unknown import warning_of

        result = self.result
        if result.oov and lacks_unknown(self.model):
            yield (
                "note: the model was read from an ARPA file without <unk>: each unknown word has a "
                "log10 probability of -100, as in KenLM; SRILM leaves such words out of its "
                "perplexity"
            )
        for remark in _remarks(result, self.texts, self.tuning, self.dynamic):
            yield f"note: {remark}"
        num_words = result.tokens - result.sentences
        unknown = result.unknown_words
        if warning := warning_of(result.oov, num_words, unknown, self.model.tokenizer):
            yield f"warning: {warning}"


def show_figures(
    result: LMEvaluation, model: Sequence[tuple[str, str]], text: str, *, to_stderr: bool
) -> None:
    """Print the figures as aligned lines; people ask for vocabulary and unknowns beside them."""
    symbols = SYMBOLS.get(result.unit, f"{result.unit} pieces")
    words = result.tokens - result.sentences
    sentences = counted(result.sentences, "sentence")
    text = "stdin" if text == "-" else text
    text = text if result.split is None else f"{text} ({result.split})"
    unknown = f"{result.oov:,} of {words:,} ({result.oov_rate:.2%})"
    figures: list[tuple[str, float | None, str]] = [
        ("perplexity", result.perplexity, ",.2f"),
        ("  without unknown", result.perplexity_without_oov if result.oov else None, ",.2f"),
        ("  of the grammar", result.true_perplexity, ",.2f"),
        ("bits per token", result.bits_per_token, ".4f"),
        ("bits per byte", result.bits_per_byte, ".4f"),
        ("  of the grammar", result.true_bits_per_byte, ".4f"),
        ("log10 probability", result.log10_probability, ",.2f"),
        ("seconds", result.seconds, ".1f"),
    ]
    rows = [
        ("text", f"{text}: {sentences}, {result.tokens:,} tokens with </s>"),
        *model,
        ("vocabulary", f"{result.vocabulary_size:,} {symbols}"),
        *([] if result.unit == "byte" else [(f"unknown {symbols}", unknown)]),  # no byte is unknown
        *(
            # what has no probability to speak of gives numbers of forty digits
            (label, format(value, form if abs(value) < HUGE else ".3e"))
            for label, value, form in figures
            if value is not None
        ),
    ]
    width = 2 + max(len(label) for label, _ in rows)
    for label, value in rows:
        echo(f"{label:<{width}}{value}", bold=label == "perplexity", err=to_stderr)


def _mixture_rows(mixture: MixtureEvaluation, tuning: Tuning | None) -> list[tuple[str, str]]:
    """Return a row per part, its weight and what it is worth alone, and one about the tuning."""
    from seqtool.lm.protocol import adaptations_of

    rows = []
    for weight, name, part, perplexity, impossible in zip(
        mixture.model.weights,
        mixture.model.names,
        mixture.model.parts,
        mixture.perplexities,
        mixture.impossible,
        strict=True,
    ):
        if part.kind == "cache":
            share = 1 - impossible / mixture.result.tokens
            worth = f"{name}: has {share:.1%} of the tokens"
        else:
            is_dynamic = any(found.kind == "dynamic" for found in adaptations_of(part))
            kind = f"{part.kind}, dynamic" if is_dynamic else part.kind
            worth = f"{name} ({kind}): perplexity {perplexity:,.2f} alone"
        rows.append((f"  weight {weight:.4f}", worth))
    if tuning is not None:
        text = f"{tuning.text}: {tuning.tokens:,} tokens, perplexity {tuning.perplexity:,.2f}"
        rows.append(("  tuned on", text))
    return rows


def _adaptation_rows(
    adaptations: Sequence[Adaptation], tunings: Sequence[DynamicTuning], num_caches_tried: int
) -> list[tuple[str, str]]:
    """Return a row that says that the models adapt, and one for each with its settings."""
    if not adaptations:
        return []
    chosen = {tuning.model.name: tuning for tuning in tunings}
    rows = [("adapting", "to this very text, as it is read; fixed models do not compare")]
    for found in adaptations:
        settings = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value:g}"
            for name, value in found.settings.items()
        )
        how = ""
        if found.kind == "cache" and num_caches_tried:
            how = f"; the best of {num_caches_tried:,} settings"
        if found.kind == "dynamic" and found.model in chosen:
            tuning = chosen[found.model]
            how = (
                f"; the best of {len(tuning.tried)} settings on the first {tuning.tokens:,} "
                f"tokens of {tuning.text}, perplexity {tuning.perplexity:,.2f}"
            )
        rows.append((f"  {found.kind}", f"{found.model}: {settings}{how}"))
    return rows


def _remarks(
    result: LMEvaluation,
    texts: Sequence[str],
    tuning: Tuning | None,
    dynamic: Sequence[DynamicTuning],
) -> Iterator[str]:
    """Give what to say of figures that do not compare, or that something was fitted to get."""
    is_dynamic = any(found.kind == "dynamic" for found in result.adaptations)
    if result.impossible:
        yield (
            f"{result.impossible:,} tokens have no probability at all under this model, so the "
            "perplexity is infinite (null in JSON)"
        )
    elif is_dynamic and result.perplexity > result.vocabulary_size:
        # what knows nothing of a text has the size of the vocabulary
        yield (
            "the perplexity is worse than that of guessing among all symbols of the vocabulary; a "
            "lower --dynamic-rate may keep the network in balance"
        )
    if result.true_perplexity is not None and result.oov:
        yield (
            "the grammar's figures are for the words themselves; this model reads some as "
            "<unk>, which is easier, so the two do not compare"
        )
    elif result.true_perplexity is not None and result.perplexity < result.true_perplexity:
        yield "better than the grammar that wrote the text: the model has seen this text before"
    measured = [(Path(text).resolve(), result.split) for text in texts]
    fitted: list[Any] = [*([] if tuning is None else [tuning]), *dynamic]
    if any((Path(found.text).resolve(), found.split) in measured for found in fitted):
        what = "weights were" if tuning is not None and not tuning.num_tried else "settings were"
        yield (
            f"the {what} fitted on the very text that is measured, so the perplexity is a "
            "little too good"
        )
    if tuning is not None and tuning.fitted.impossible:
        yield (
            f"{tuning.fitted.impossible:,} tokens of the tuning text have no probability under any "
            "of the models; the weights were fitted on the others"
        )
