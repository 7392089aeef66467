"""`seqtool rescore`: n-best lists by a language model."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from seqtool.cli import options as cli
from seqtool.cli.models import ModelsOption, WeightsOption, chosen_models, parse_weights
from seqtool.cli.usage import examples
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, DataError, counted, did_you_mean
from seqtool.core.reading import Place


@dataclass(frozen=True)
class WordErrorOptions:
    """What the best are measured by, of lines ID WORDS."""

    references: str | None = cli.option(None, "ID WORDS a line: give the word error rate.", "FILE")
    tune: str | None = cli.option(None, "Fit weights by such a file, to few word errors.", "FILE")


@examples(
    "seqtool rescore nbest.txt -m runs/lm --costs ac_cost --best",
    "seqtool rescore dev.tsv -m runs/lm --tune dev.ref -o rescored.tsv",
)
def rescore(
    nbest: str = cli.argument(..., "A list of Kaldi, of Moses, or TSV; - is stdin.", "NBEST"),
    model: ModelsOption = None,
    weights: WeightsOption = None,
    costs: list[str] | None = cli.option(None, "Kaldi's costs, UTT-N COST; repeatable.", "FILE"),
    scale: list[str] | None = cli.option(None, "Weight of a score; repeatable.", "NAME=X"),
    carry_state: bool = cli.option(False, "Read on from the utterance before, its first one."),
    best: bool = cli.option(False, "Give id and text of the best hypotheses alone."),
    output: cli.TableOption = "-",
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    *,
    by: WordErrorOptions,
) -> None:
    """Score the hypotheses of n-best lists by a language model, and choose the best of each.

    The result is a table of the list with lm_log10, of the whole sentence, and total, the weighted
    sum of all scores. By default the scores of the list and lm_log10 weigh 1, the features of Moses
    and words (their number) 0. Costs of Kaldi become scores: -cost.
    """
    import numpy as np

    from seqtool.lm import rescoring
    from seqtool.lm.mixture.model import mix, open_parts
    from seqtool.lm.tables import check_target, open_table

    measured = by.references or by.tune
    check_target(output, filter(None, [nbest, *(costs or ()), by.references, by.tune]))
    given = rescoring.numbers_of(dict(text.partition("=")[::2] for text in scale or ()))
    references = rescoring.read_lines(measured) if measured else {}
    paths = chosen_models(model)
    shares = parse_weights(weights, len(paths))
    lm = mix(open_parts(paths, device=device, threads=threads), paths, shares)
    counts, stream = np.zeros(5, np.int64), terminal.stream()
    with (
        Place("<stdin>" if nbest == "-" else nbest, 1).locating(),
        open_table(stream if output == "-" else output) as table,
    ):
        hypotheses = rescoring.read_nbest(nbest, costs or ())
        utterances = rescoring.rescore(lm, hypotheses, carry_state=carry_state)
        if (first := next(utterances, None)) is None:
            raise DataError("the list has no hypotheses", hint="give some", line=1)
        used = first.default_weights()
        for name in given.keys() - used:
            raise ConfigError(f"no score is called {name!r}", hint=did_you_mean(name, used))
        used |= given
        utterances = chain([first], utterances)
        if by.tune:
            utterances = iter(kept := [*utterances])
            used = rescoring.tune_weights(kept, rescoring.read_lines(by.tune), used)
        for utterance in utterances:
            totals = utterance.totals(used)
            chosen = utterance.cells[int(totals.argmax())]
            alone = {"id": [utterance.id], "text": [chosen["text"]]}
            table.write(alone if best else utterance.columns(totals))
            stream.flush()  # who reads a pipe gets each as it comes
            if (reference := references.get(utterance.id)) is not None:
                errors = utterance.errors(reference)
                num_words = len(rescoring.words_of(reference))
                counts += [errors[totals.argmax()], errors[0], errors.min(), num_words, 1]
    cli.note(" ".join(f"--scale {name}={x:.6g}" for name, x in used.items() if x))
    if measured and not counts[4]:
        cli.note(f"note: no utterance of the list has a reference in {measured}")
    elif measured:
        rates = [f"{share:.2%}" for share in counts[:3] / max(1, counts[3])]
        what = f"{counts[0]:,} errors in {counts[3]:,} words of {counts[4]:,} utterances"
        cli.note(f"WER {rates[0]}: {what}; of the first ones {rates[1]}, oracle {rates[2]}")
        if num := len(references) - int(counts[4]):
            cli.note(f"note: {counted(num, 'reference')} without an utterance in the list")
