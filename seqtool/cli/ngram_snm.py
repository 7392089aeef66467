"""`seqtool ngram snm`: train a sparse non-negative matrix language model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seqtool.cli import options as cli
from seqtool.cli.ngram import (
    READING,
    FieldOption,
    InputsArgument,
    counts_to_json,
    note_counts,
    refuse_unprepared,
)
from seqtool.cli.usage import examples
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.snm.learning import SnmTraining


@cli.takes_options(
    "seqtool.lm.snm.features:SnmConfig",
    {
        **cli.same_names("order", "remote", "gap", "adjacent", "prune", "epochs"),
        "--lr": "learning_rate",
        "--time-limit": cli.option_for("time_limit", metavar="TIME"),
        "--vocab": cli.option_for(
            "vocab", help="A closed vocabulary, one word a line.", metavar="FILE"
        ),
        **cli.same_names("table_bits", "vocab_size", "min_count"),
        **READING,
    },
    shows_defaults=True,
)
@examples(
    "seqtool ngram snm my.txt -o runs/my",
    "seqtool ngram snm corpora/ptb/words --prune 1 -o runs/ptb-snm",
    "seqtool ngram snm my.txt --remote 0 --order 4",
    "seqtool ngram snm my.txt --time-limit 10m",
)
def snm(
    context: typer.Context,
    inputs: InputsArgument = None,
    output: cli.OutputOption = Path("runs/snm"),
    field: FieldOption = None,
    threads: cli.ThreadsOption = None,
    memory: cli.MemoryOption = None,
    force: cli.ForceOption = False,
    as_json: cli.JsonOption = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a sparse non-negative matrix language model: n-grams and skip-grams, adjusted.

    Each feature of a history adds what it expects of each word: a relative frequency, times a
    factor that is learnt while each token is left out of the counts.
    """
    from seqtool.core.config import from_dict, refuse_unread
    from seqtool.core.progress import stage_bars
    from seqtool.core.runtime import parse_size
    from seqtool.lm.snm.features import SnmConfig
    from seqtool.lm.snm.learning import train_snm as train

    config = from_dict(SnmConfig, settings)
    for name in settings:
        refuse_unread([(config, name)])
    inputs = inputs or [cli.stdin_or_sample("CORPUS", training="training on")]
    refuse_unprepared(context, inputs, config)
    with stage_bars() as on_progress:
        trained = train(
            inputs,
            output,
            config,
            field=field,
            force=force,
            threads=threads,
            memory=None if memory is None else parse_size(memory),
            command=cli.typed(),
            on_progress=on_progress,
        )
    if as_json:
        return cli.emit(
            {
                "model": trained.path,
                **counts_to_json(trained),
                "kinds": trained.kinds,
                "losses": trained.losses,
                "passes": trained.passes,
                **trained.scores,
            }
        )
    _show(trained, is_limited=config.time_limit is not None)
    has_scores = "valid_perplexity" in trained.scores
    measuring = "eval-ppl -m {}" if has_scores else "eval-ppl TEXT -m {}"
    cli.note_next(measuring, "inspect {}", model=trained.path)
    echo(trained.path)


def _show(trained: SnmTraining, *, is_limited: bool) -> None:
    """Say on stderr what was counted and learnt."""
    note_counts(trained)
    columns = ["remote", "skipped", "adjacent", "features", "pairs"]
    rows = [[f"{kind[name]:,}" for name in columns] for kind in trained.kinds]
    cli.show_table("", columns, rows, to_stderr=True)
    for epoch, loss in enumerate(trained.losses, start=1):
        cli.note(f"epoch {epoch}: perplexity {loss:.2f} of the text itself, each token left out")
    if is_limited:
        cli.note(f"{trained.passes:.2f} passes over the text in the time")
    parts = ", ".join(f"{stage} {value:.1f}" for stage, value in trained.seconds.items())
    cli.note(f"{trained.total_seconds:.1f} s ({parts})")
    if "valid_perplexity" in trained.scores:
        cli.note(f"valid perplexity {trained.scores['valid_perplexity']:.2f}")
