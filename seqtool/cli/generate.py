"""`seqtool generate`: text from a language model."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seqtool.cli.mixing import (
    ModelsOption,
    WeightsOption,
    chosen_models,
    open_models,
    parse_weights,
)
from seqtool.cli.options import (
    DeviceOption,
    JsonOption,
    SeedOption,
    ThreadsOption,
    emit,
    note,
)

if TYPE_CHECKING:
    from seqtool.lm.sampling import Piece


def generate(
    prompt: Annotated[
        str,
        typer.Option(
            "-p", "--prompt", metavar="TEXT", help="The beginning of the text; - reads stdin."
        ),
    ] = "",
    model: ModelsOption = None,
    weights: WeightsOption = None,
    num: Annotated[int, typer.Option("-n", "--num", metavar="N", help="How many samples.")] = 1,
    max_tokens: Annotated[
        int, typer.Option(metavar="N", help="The longest continuation, in tokens.")
    ] = 100,
    temperature: Annotated[
        float,
        typer.Option(metavar="T", help="Below 1 safer, above 1 wilder, 0 always the likeliest."),
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Draw from the K likeliest tokens only.")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(metavar="P", help="Draw from the fewest tokens whose probability reaches P."),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(metavar="N", help="Beam search with N hypotheses instead of chance."),
    ] = None,
    length_penalty: Annotated[
        float,
        typer.Option(metavar="A", help="Rank the beam by log-probability / length^A."),
    ] = 0.0,
    stop: Annotated[
        bool,
        typer.Option("--stop/--no-stop", help="Stop at the end of the sentence, or go on."),
    ] = True,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Read unknown words of the prompt as <unk>.")
    ] = False,
    generate_unk: Annotated[
        bool, typer.Option("--generate-unk", help="Let the model write <unk>.")
    ] = False,
    seed: SeedOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write text with a language model, or with several mixed, continuing a prompt.

    The text appears as it is made. Several samples come one per line, or with a blank line between
    them if they hold several sentences; a beam gives its N best texts, the best first.
    """
    from seqtool.lm import sampling

    if prompt == "-":
        prompt = sys.stdin.read().rstrip("\r\n")
    options: dict[str, Any] = {
        "num": num,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "beam": beam,
        "length_penalty": length_penalty,
        "stop_at_sentence_end": stop,
        "generate_unk": generate_unk,
    }
    sampling.GenerateConfig(**options)  # an impossible option fails before a model is loaded
    paths = chosen_models(model)
    shares = parse_weights(weights, len(paths))
    language_model = open_models(paths, shares, device=device, threads=threads)
    is_new_seed = seed is None and beam is None and temperature > 0
    if is_new_seed:
        seed = secrets.randbelow(1 << 32)
    pieces = sampling.generate(
        language_model, prompt, seed=seed, allow_unknown=allow_unknown, **options
    )
    if is_new_seed:
        note(f"--seed {seed} writes the same again")
    if num == 1 and not as_json:
        _stream(pieces)
        return
    samples = sampling.collect(pieces, language_model.tokenizer.vocabulary)
    if as_json:
        emit({"prompt": prompt, "samples": [dataclasses.asdict(sample) for sample in samples]})
        return
    texts = [sample.text for sample in samples]
    blank = "\n\n" if any("\n" in text for text in texts) else "\n"
    typer.echo(blank.join(texts))


def _stream(pieces: Iterable[Piece]) -> None:
    try:
        for piece in pieces:
            if piece.text:
                typer.echo(piece.text, nl=False)
    finally:  # after Ctrl-C too, the shell's prompt shall begin a line
        typer.echo()
