"""`seqtool generate`: text from a language model."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from seqtool.cli import options as cli
from seqtool.cli.models import ModelsOption, WeightsOption, chosen_models, parse_weights
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError
from seqtool.core.terminal import echo

if TYPE_CHECKING:
    from seqtool.lm.sampling import Piece


@cli.takes_options(
    "seqtool.lm.sampling:GenerateConfig",
    {
        "-n,--num": "num",
        "--stop/--no-stop": "stop_at_sentence_end",
        **cli.same_names("max_tokens", "temperature", "top_k", "top_p", "beam", "generate_unk"),
    },
    panel=None,
    shows_defaults=True,
)
@examples(
    'seqtool generate --prompt "the old" -m runs/my',
    "seqtool generate --num 5 --temperature 0.8 --top-k 40 --seed 1",
    'seqtool generate --prompt "the old" --beam 4',
    'seqtool generate --prompt "the old" --next 5',
)
def generate(
    prompt: str | None = cli.option(
        None, "The beginning of the text; - reads stdin.", "TEXT", "-p", "--prompt"
    ),
    model: ModelsOption = None,
    weights: WeightsOption = None,
    allow_unknown: bool = cli.option(False, "Read unknown words of the prompt as <unk>."),
    next_tokens: int | None = cli.option(
        None, "Show the N most probable next tokens, and write nothing.", "N", "--next", min=1
    ),
    *,
    settings: dict[str, Any],
    seed: cli.SeedOption = None,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Write text with a language model, or with several mixed, continuing a prompt.

    The text appears as it is made. Several samples come one per line, or with a blank line between
    them if they hold several sentences; a beam gives its N best texts, the best first. With --next,
    of an n-gram model the order of the n-gram that gave each probability is told; of several models
    mixed, what each gives the token, and its share of the sum.
    """
    from seqtool.lm import sampling
    from seqtool.lm.mixture.model import mix, open_parts

    prompt = cli.prompt_text(prompt)
    config = sampling.GenerateConfig(**settings)  # it is refused before a model is loaded
    draws = config.beam is None and config.temperature > 0
    if seed is not None and not draws:
        raise ConfigError("--seed is of chance, but nothing is drawn", hint="drop --seed")
    if next_tokens is not None and (seed is not None or config != sampling.GenerateConfig()):
        what = "--next writes no text, so settings of writing, and --seed, cannot apply"
        raise ConfigError(what, hint="drop --next, or those")
    paths = chosen_models(model)
    shares = parse_weights(weights, len(paths))
    language_model = mix(open_parts(paths, device=device, threads=threads), paths, shares)
    if next_tokens is not None:
        from seqtool.analysis.prediction import next_words
        from seqtool.cli.reports import show_report, to_json

        name = " + ".join(map(str, paths))
        report = next_words(
            language_model, name, prompt, top=next_tokens, allow_unknown=allow_unknown
        )
        return cli.emit(to_json(report)) if as_json else show_report(report)
    is_new_seed = seed is None and draws
    if is_new_seed:
        seed = secrets.randbelow(1 << 32)
    pieces = sampling.generate(
        language_model, prompt, seed=seed, allow_unknown=allow_unknown, **settings
    )
    if is_new_seed:
        cli.note(f"--seed {seed} writes the same again")
    if config.num == 1 and not as_json:
        _stream(pieces)
        return
    samples = sampling.collect(pieces, language_model.tokenizer.vocabulary)
    if as_json:
        return cli.emit({"prompt": prompt, "samples": list(map(dataclasses.asdict, samples))})
    texts = [sample.text for sample in samples]
    blank = "\n\n" if any("\n" in text for text in texts) else "\n"
    echo(blank.join(texts))


def _stream(pieces: Iterable[Piece]) -> None:
    try:
        for piece in pieces:
            if piece.text:
                echo(piece.text, end="")
    finally:  # after Ctrl-C too, the shell's prompt shall begin a line
        echo()
