"""`seqtool train-parser`: train a parser, or with --raw all that plain text needs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from seqtool.cli import training
from seqtool.cli.options import MAX_SHOWN, note, option, option_for, setting_option, takes_options
from seqtool.cli.training import note_data, report
from seqtool.cli.usage import examples
from seqtool.core.errors import ConfigError, counted

PARTS = ("segmenter",)  # those that --only trains


@dataclass(frozen=True)
class TeacherOptions:
    """Models that a parser learns from, beside the treebank."""

    distil: list[str] | None = setting_option(
        None, "Learn from parsers over the same treebank as well.", "MODEL,MODEL"
    )
    unlabelled: list[str] | None = setting_option(
        None, "With --distil: CoNLL-U or text for them to parse; repeatable.", "FILE"
    )
    init: Path | None = setting_option(
        None, "With --loss global: a parser of the same settings to begin from.", "MODEL"
    )

    def sources(self) -> dict[str, Any]:
        """Return the arguments of `train_parser`."""
        names = [name.strip() for names in self.distil or () for name in names.split(",")]
        teachers = [name for name in names if name]
        if self.distil and not teachers:
            raise ConfigError("--distil names no parser", hint="write --distil runs/a,runs/b")
        return {"distil": teachers, "unlabelled": self.unlabelled or (), "init": self.init}


@takes_options(
    "seqtool.parsing.parser.config:ParserConfig",
    {
        "--decoder": option_for("model.decoder", help="What finds trees (default transition)."),
        "--classifier": option_for("model.classifier", help="What scores them (default neural)."),
        "--loss": option_for("learning.loss", help="What is learnt (default local)."),
        "--system": option_for(
            "model.system",
            help="auto (by the treebank, the default), arc-standard, arc-eager, arc-hybrid or "
            "swap.",
            metavar="NAME",
        ),
        "--encoder": option_for(
            "model.encoder", help="What reads words in their sentence (default none)."
        ),
        "--hidden": "model.hidden_size",
        **training.SETTINGS,
        "--epochs": option_for(
            "training.epochs",
            help="Passes over the training part; with --raw those of the parsers.",
        ),
    },
)
@examples(
    "seqtool train-parser train.conllu --dev dev.conllu -o runs/parser",
    "seqtool train-parser train.conllu --dev dev.conllu --raw -o runs/mine",
    "seqtool train-parser train.conllu --preset accurate --fields form,upos",
    "seqtool train-parser train.conllu --distil runs/a,runs/b --unlabelled text.txt",
    "seqtool train-parser train.conllu --raw --only segmenter -o runs/segmenter",
)
def train_parser(
    treebank: list[Path] | None = training.treebank_argument("with trees (also packed)"),
    dev: Path | None = training.dev_option("LAS"),
    output: Path | None = option(
        None, "Directory to write to; runs/parser if not given, with --only runs/PART.", "DIR", "-o"
    ),
    raw: bool = option(False, "Train all that plain text needs: a segmenter, taggers and parsers."),
    only: str | None = option(
        None, "Of --raw, train this part alone: segmenter. Settings are those of the part.", "PART"
    ),
    preset: str | None = setting_option(
        None,
        "Settings by name (default fast; accurate with --raw, where best takes up to twice as "
        "long). Words of chen-manning have two vectors, summed: of the form, and of its lower "
        "case, which the paper has not.",
        "fast|accurate|graph|chen-manning|linear|mst|best",
    ),
    fast: bool = setting_option(False, "The same as --preset fast, also with --raw."),
    fields: str | None = setting_option(
        None, "What is read of a word (form,upos,feats), or what is not (-lemma,-xpos).", "LIST"
    ),
    *,
    teachers: TeacherOptions,
    settings: dict[str, Any],
    options: training.TreebankOptions,
) -> None:
    """Train a dependency parser on a treebank.

    The trees are those of columns HEAD and DEPREL; the parser reads the other columns, so train it
    with --fields that will be there when it parses.
    """
    from seqtool.core.checkpoint import run_kind
    from seqtool.parsing.parser.config import parse_fields

    if fast and preset not in (None, "fast"):
        raise ConfigError(f"--fast and --preset {preset} exclude each other", hint="give only one")
    if only not in (None, *PARTS):
        hint = f"choose {' or '.join(PARTS)}; `seqtool train-tagger` trains a tagger"
        raise ConfigError(f"no part that is trained alone is called {only!r}", hint=hint)
    if fields is not None:
        settings["model.fields"] = parse_fields(fields)
    output = output or Path("runs", only or "parser")
    kind = run_kind(output) if options.resume else None
    part = only or ("pipeline" if raw else "parser")
    part = kind if kind in ("segmenter", "pipeline") else part
    sources = {"embeddings": options.embeddings} | teachers.sources()
    read = {"segmenter": (), "pipeline": ("embeddings",), "parser": tuple(sources)}[part]
    if refused := [name for name, value in sources.items() if value and name not in read]:
        what = f"--{refused[0]} is not for {'all that --raw trains' if raw else f'a {part}'}"
        raise ConfigError(what, hint="leave it out, or train a parser alone")
    sources = {name: sources[name] for name in read}
    if preset == "best" and part != "pipeline":
        raise ConfigError("--preset best is for --raw", hint="add --raw, or take accurate or graph")
    preset = "fast" if fast else preset
    _train(part, (treebank, dev), output, preset, settings, options, sources)


def _train(
    part: str,
    data: tuple[list[Path] | None, Path | None],
    output: Path,
    preset: str | None,
    settings: dict[str, Any],
    options: training.TreebankOptions,
    sources: dict[str, Any],
) -> None:
    """Train a parser, all that plain text needs, or a part of it."""
    from seqtool.core.checkpoint import run_record
    from seqtool.core.storage import read_object
    from seqtool.parsing.config import PRESETS_OF
    from seqtool.treebank.conllu import describe_held_out

    record = run_record(output)
    run = read_object(record) if options.resume and record.is_file() else {}
    given = {
        "--distil": sources.get("distil") or run.get("distil"),
        "--raw": part == "pipeline" or run.get("gold_tags"),  # which Python can name, too
    }
    facts = [name for name, value in given.items() if value]
    combine = PRESETS_OF[part].resolve
    chosen = options.resolve(combine, (preset, options.config), settings, output, facts)
    if chosen is None:
        return
    train = getattr(import_module(f"seqtool.parsing.{part}.train"), f"train_{part}")
    treebank, sources["dev"] = options.treebanks(*data)
    if part == "pipeline":
        sources["on_held_out"] = lambda *numbers: note(describe_held_out(*numbers))
    else:
        show = _note_segmenter_data if part == "segmenter" else _note_parser_data
        sources["on_data"] = partial(show, chosen)
    trained = options.run(train, treebank, output, chosen, **sources)
    scores, more = trained.scores, {}
    if part == "segmenter":
        shown = f"words F1 {scores['dev_words']:.2f}, sentences F1 {scores['dev_sentences']:.2f}"
        following = "segment FILE.txt -m {}"
    elif part == "parser":
        shown = f"LAS {scores['dev_las']:.2f}, UAS {scores['dev_uas']:.2f}"
        # what was trained by beams is to be searched by one as wide
        learning, more = chosen.learning, {"system": trained.system}
        beam = f" --beam {learning.global_beam}" if learning.loss == "global" else ""
        following = f"parse FILE.conllu -m {{}}{beam}"
    else:
        names = {name: name.replace("dev_", "").replace("_", " ") for name in scores}
        shown = ", ".join(f"{names[name]} {value:.2f}" for name, value in scores.items())
        following = "parse FILE.txt -m {}"
    report(trained, options.json, f"dev {shown}", next=(following,), **more)


def _note_segmenter_data(chosen: Any, data: Any) -> None:
    """Say what a segmenter is trained on."""
    paragraphs, tokens = data.summary["paragraphs"], data.summary["tokens"]
    of_several = f"{data.summary['multiword_tokens']:,} of them of several words"
    shown = f"{counted(paragraphs, 'paragraph')}, {counted(tokens, 'token')}, {of_several}"
    note_data(data.summary, shown)


def _note_parser_data(chosen: Any, data: Any) -> None:
    """Say what is left out, what is trained on, and by which system."""
    from seqtool.parsing.parser.config import SMALL_SENTENCES

    for error in data.skipped[:MAX_SHOWN]:
        note(f"left out: {error}")
    if len(data.skipped) > MAX_SHOWN:
        note(f"{counted(len(data.skipped), 'broken sentence')} left out in all")
    summary, model = data.summary, data.config.model
    crossing, num = summary["non_projective_sentences"], summary["sentences"]
    note_data(
        summary,
        f"{crossing:,} non-projective ({crossing / num:.1%})",
        counted(summary["labels"], "label"),
        f"{model.trees} trees" if model.decoder == "graph" else f"system {model.system}",
    )
    if "taught_sentences" in summary:
        sentences, words = summary["taught_sentences"], summary["taught_words"]
        parsed = f"{words:,} words that {summary['teachers']} parsed"
        note(f"beside them {counted(sentences, 'sentence')} of {parsed}")
    epochs = data.config.training.epochs
    if data.config.training.time_limit is None and epochs != chosen.training.epochs:
        small = f"any treebank of fewer than {SMALL_SENTENCES:,} sentences"
        note(f"{counted(epochs, 'epoch')} by learning.small_epochs, as of {small}")
