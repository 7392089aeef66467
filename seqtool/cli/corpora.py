"""A corpus that a model annotates: files are read, go through the model, and are written.

`segment`, `tag` and `parse` are short commands over `Corpus`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli.options import MAX_SHOWN, JobsOption, is_folder, note, option
from seqtool.cli.spark import SparkOptions
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, DataError, counted

if TYPE_CHECKING:
    from seqtool.core.progress import OnProgress
    from seqtool.parsing.annotation import Annotation, Part, Seen
    from seqtool.treebank.conllu import Broken, Item

DOING = {"segment": "segmenting", "tag": "tagging", "parse": "parsing"}


@dataclass(frozen=True)
class OutputOptions:
    """Where annotated text goes, and how many processes annotate it."""

    output: str = option(
        "-", "Where to write; - is stdout, and DIR/ gets a file for each input.", "FILE", "-o"
    )
    jobs: JobsOption = 1


@dataclass(frozen=True)
class BrokenOptions:
    """What becomes of broken sentences."""

    skip_invalid: bool = option(
        False, "Pass broken sentences through; leave out files that cannot be read."
    )
    invalid: str | None = option(
        None, "Write broken sentences there with the reason, not to the output.", "FILE"
    )

    @property
    def of_annotation(self) -> dict[str, Any]:
        """The arguments of an `Annotation`."""
        is_apart = self.invalid is not None
        return {"skip_invalid": self.skip_invalid or is_apart, "keeps_invalid": not is_apart}


class _Notes:
    """The first errors of a kind as lines on stderr, and how many there are."""

    def __init__(self, fate: str) -> None:
        self._fate, self.num = fate, 0

    def add(self, error: DataError) -> None:
        self.num += 1
        if self.num <= MAX_SHOWN:
            note(f"{self._fate}: {error}")


class Corpus:
    """A corpus and the model that annotates it.

    Args:
        annotation: what is done.
        files: files and directories as they were named.
        model: opened; None where text is split without one.
        paths: of the models.

    Attributes:
        seen: what is to be told of the sentences so far.
    """

    def __init__(
        self,
        annotation: Annotation,
        files: Sequence[str],
        model: Any,
        paths: Sequence[Path],
    ) -> None:
        from seqtool.parsing.annotation import Seen

        self.annotation, self.files, self.model = annotation, files, model
        self._paths = paths
        self._path = paths[0] if paths else None
        self._is_text = annotation.layout is not None
        self._on_broken: Callable[[Broken], None] = lambda broken: None
        self._warned = False
        self.seen = Seen()

    def write(
        self,
        out: OutputOptions,
        invalid: str | None = None,
        *,
        spark: SparkOptions,
        format_: str | None = None,
        parts_of: Callable[[Sequence[str]], Iterator[Part]] | None = None,
    ) -> Seen:
        """Annotate the corpus and write it, by this machine or by Spark; return what was seen.

        Args:
            out: a file, `-`, or a directory, which gets a file for each input.
            invalid: a file for broken sentences.
            spark: of Spark, nothing is seen.
            format_: what Spark writes; by the name of the output when not given.
            parts_of: annotates files in place of `Annotation`, in one process.

        Raises:
            ConfigError, OutputError: as of `_plan`; or what Spark cannot do.
            ProcessError: a process was lost.
        """
        annotation, output = self.annotation, out.output
        if spark.is_spark():
            spark.annotate(
                annotation,
                self.files,
                self._paths,
                output,
                format_=format_,
                invalid=invalid,
                jobs=out.jobs > 1,
            )
            return self.seen
        targets = self._plan(output, invalid)
        with self._opened(invalid, "passed through") as files:
            if parts_of is not None:
                self._write(parts_of(files), output, targets)
            elif out.jobs == 1:
                with self._bar(output) as on_progress:
                    parts = annotation.parts(self._items(files, on_progress), self.model)
                    self._write(parts, output, targets)
            else:
                self._write_by_processes(files, out, targets)
        return self.seen

    def _write_by_processes(
        self, files: Sequence[str], out: OutputOptions, targets: dict[str, Path] | None
    ) -> None:
        from seqtool.core.processes import Pool, can_fork
        from seqtool.parsing.annotation import make_annotator, put_together

        forks, annotation = can_fork(), self.annotation
        make: Callable[[], Any] = partial(partial, annotation.annotate, model=self.model)
        if not forks:
            make = partial(make_annotator, annotation, self._paths)
        # a bar has a thread, and none is to be when a process is copied
        with Pool(make, out.jobs, forks=forks) as pool, self._bar(out.output) as on_progress:
            done = pool.map(annotation.read_chunks(files, on_progress=on_progress))
            parts = put_together(annotation, done, self.seen, self._on_broken)
            self._write(parts, out.output, targets)

    @contextmanager
    def items(self, output: str, invalid: str | None) -> Iterator[Iterator[Item]]:
        """Give the sentences, for what is drawn into an output; arguments are those of `write`."""
        self._plan("-" if is_folder(output) else output, invalid)
        with self._opened(invalid, "left out") as files, self._bar(output) as on_progress:
            yield self._items(files, on_progress)

    def _items(self, files: Sequence[str], on_progress: OnProgress | None) -> Iterator[Item]:
        items = self.annotation.read(files, self.model, self._path, on_progress)
        return self.annotation.watched(items, self.model, self.seen, self._on_broken)

    @contextmanager
    def _opened(self, invalid: str | None, fate: str) -> Iterator[Sequence[str]]:
        """Give the files that can be read; say which sentences and files are broken.

        Files are left out if broken sentences are, which go to the file `invalid` if there is one.
        """
        from seqtool.parsing.annotation import usable_files
        from seqtool.treebank.conllu import open_target

        fate = fate if invalid is None else f"written to {invalid}"
        broken, left_out = _Notes(fate), _Notes("left out")
        files = self.files
        if self.annotation.skip_invalid:
            files = usable_files(files, left_out.add, texts=self._is_text)
        with nullcontext() if invalid is None else open_target(invalid) as apart:

            def on_broken(item: Broken) -> None:
                broken.add(item.error)
                if apart is not None:
                    apart.write(f"# {item.error}\n{item.to_conllu()}".encode())

            self._on_broken = on_broken
            yield files
        if left_out.num:
            note(f"{left_out.num:,} of {counted(left_out.num + len(files), 'file')} left out")
        if broken.num > MAX_SHOWN:
            note(f"{counted(broken.num, 'broken sentence')} {fate} in all")
        self._warn_of_unknown()
        if self.seen.is_decomposed:
            note(
                "warning: there are letters that are written in parts (Unicode NFD), and a model "
                "that learnt whole letters (NFC) does not know such words: bring the text into "
                "NFC first, see `seqtool help troubleshooting`"
            )

    def _warn_of_unknown(self) -> None:
        """Say once where words and tags are none that the model learnt."""
        known = getattr(self.model, "known", None)
        if known is None or self._warned:
            return
        self._warned = True
        has_retag = self.annotation.work == "parse" and self.model.has_tagger
        for warning in self.seen.unknown.warnings(known, ", as --retag does" * has_retag):
            note(f"warning: {warning}")

    @contextmanager
    def _bar(self, output: str) -> Iterator[OnProgress | None]:
        """Show how much is read, unless what is written goes to the same terminal."""
        from seqtool.core.progress import progress_bar

        if output == "-" and terminal.stream().isatty():
            yield None
            return
        with progress_bar(DOING[self.annotation.work], is_bytes=True) as on_progress:
            yield on_progress

    def _plan(self, output: str, invalid: str | None) -> dict[str, Path] | None:
        """Return which file of a directory each input goes to; None where all go to one output.

        A text is never written over, since it cannot be had back. A treebank is, where it or its
        directory is named as the output; not because it happens to lie in the directory that is.

        Raises:
            ConfigError: two outputs would be one, or one has no name.
            OutputError: what is read would be replaced.
        """
        from seqtool.core.reading import find_files
        from seqtool.core.storage import refuse_input

        if self.annotation.layout is not None:  # what splits it is there, before a process begins
            self.annotation.layout.splitter(self.model, self._path)
        inputs = [
            (given, name)
            for given in self.files
            for name in find_files([given], treebanks=not self._is_text)
        ]
        read = {os.path.realpath(name) for _, name in inputs}
        targets = None
        written = [output]
        if is_folder(output):
            targets = self._targets(Path(output), inputs)
            written = [str(target) for target in targets.values()]
        for target, (given, name) in zip(written, inputs, strict=False):
            is_kept = self._is_text or (targets is not None and given == name)
            if target != "-" and is_kept and os.path.realpath(target) in read:
                refuse_input(target, [target])
        if invalid is not None:
            refuse_input(invalid, [name for _, name in inputs])
            if os.path.realpath(invalid) in map(os.path.realpath, written):
                what = f"broken sentences and all others would both be written to {invalid}"
                raise ConfigError(what, hint="name another file with --invalid")
        return targets

    def _targets(self, folder: Path, inputs: Sequence[tuple[str, str]]) -> dict[str, Path]:
        """Return where each file goes; those of a directory keep their folders."""
        from seqtool.core.reading import STDIN

        sources: dict[Path, str] = {}
        for given, name in inputs:
            if name == STDIN:
                raise ConfigError(
                    "what comes from stdin has no name in a directory",
                    hint=f"name a file: -o {folder / 'stdin.conllu'}",
                )
            path = Path(name)
            own = path.relative_to(given) if Path(given).is_dir() else Path(path.name)
            if self._is_text and self.annotation.form == "conllu":
                own = _as_conllu(own)
            if (target := folder / own) in sources:
                raise ConfigError(
                    f"{sources[target]} and {name} would both be written to {target}",
                    hint="rename one, or give their directory, whose folders are kept",
                )
            sources[target] = name
        return {name: target for target, name in sources.items()}

    def _write(self, parts: Iterable[Part], output: str, targets: dict[str, Path] | None) -> None:
        """Write what has become of files; see `write`."""
        from seqtool.treebank.conllu import write_pieces
        from seqtool.treebank.layouts import document_id

        def warned() -> Iterator[Part]:
            for part in parts:
                yield part
                if self.seen.unknown.is_enough:
                    self._warn_of_unknown()

        if targets is None:
            return write_pieces((content for _, content in warned()), output)
        # the sentences of a text tell its name as the id of a document
        waiting = {document_id(name): target for name, target in targets.items()}
        for path, own in groupby(warned(), key=itemgetter(0)):
            target = waiting.pop(path if self._is_text else document_id(path))
            target.parent.mkdir(parents=True, exist_ok=True)
            write_pieces((content for _, content in own), target)
        # of files that are empty or left out, what an earlier run wrote does not stay
        read = set(map(os.path.realpath, targets))
        for target in waiting.values():
            if target.is_file() and os.path.realpath(target) not in read:
                write_pieces((), target)


def _as_conllu(path: Path) -> Path:
    """Return the name of a text's file as one of CoNLL-U: letter.txt.gz is letter.conllu.gz."""
    from seqtool.core.reading import unpacked_name

    unpacked = path.with_suffix("") if unpacked_name(path) != path.name.lower() else path
    packed = path.suffix if path.suffix.lower() in (".gz", ".zst") else ""  # no others are written
    return unpacked.with_suffix(f".conllu{packed}")
