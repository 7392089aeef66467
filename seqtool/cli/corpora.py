"""How `segment`, `tag` and `parse` go through a corpus: files, processes, what is told, outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqtool.cli.options import MAX_SHOWN, is_folder, note
from seqtool.core import terminal
from seqtool.core.errors import ConfigError, DataError, OutputError, counted

if TYPE_CHECKING:
    from seqtool.core.progress import OnProgress
    from seqtool.parsing.annotation import Annotation, OnBroken, Part, Seen
    from seqtool.treebank.conllu import Broken, Item

DOING = {"segment": "segmenting", "tag": "tagging", "parse": "parsing"}


class Run:
    """A corpus that is annotated.

    Args:
        annotation: what is done.
        files: files and directories as they were named.
        model: opened; None where text is split without one.
        paths: of the models.
        embeddings: see `make_annotator`.

    Attributes:
        seen: so far.
    """

    def __init__(
        self,
        annotation: Annotation,
        files: Sequence[str],
        model: Any,
        paths: Sequence[Path],
        embeddings: Path | None = None,
    ) -> None:
        from seqtool.parsing.annotation import Seen

        self._annotation, self._files, self._model = annotation, files, model
        self._paths, self._embeddings = paths, embeddings
        self._path = paths[0] if paths else None
        self._on_broken: OnBroken = lambda broken: None
        self.seen = Seen()
        self._has_told = False
        if annotation.layout is not None:  # before anything is begun
            annotation.layout.splitter(model, self._path)

    def write(self, output: str, *, jobs: int, invalid: str | None = None) -> Seen:
        """Annotate, and write what comes of it; return what is to be told of it.

        Args:
            output: a file, `-`, or a directory, which gets a file for each.
            jobs: processes that do it.
            invalid: a file for broken sentences.

        Raises:
            ConfigError: two outputs would be one.
            OutputError: a text, or what is read and has broken sentences, would be written over.
            ProcessError: a process was lost.
        """
        annotation, model = self._annotation, self._model
        self._check_apart(output, invalid)
        fate = "passed through" if annotation.keeps_invalid else f"written to {invalid}"
        with self._telling(invalid, fate), self.usable() as files:
            if jobs == 1:
                with self._bar(output) as on_progress:
                    items = annotation.read(files, model, self._path, on_progress)
                    self.write_parts(annotation.parts(self.watched(items), model), output)
                return self.seen
            from seqtool.core.processes import Pool, can_fork
            from seqtool.parsing.annotation import make_annotator, put_together

            forks = can_fork()
            make: Callable[[], Any] = partial(partial, annotation.annotate, model=model)
            if not forks:
                make = partial(make_annotator, annotation, self._paths, self._embeddings)
            # a bar has a thread, and none is to be when a process is copied
            with Pool(make, jobs, forks=forks) as pool, self._bar(output) as on_progress:
                chunks = annotation.read_chunks(files, on_progress=on_progress)
                done = pool.map(chunks)
                parts = put_together(annotation, done, self.seen, self._on_broken)
                self.write_parts(self._telling_unknown(parts), output)
        return self.seen

    def _telling_unknown(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Pass on what is written, and tell of unknown words as soon as they are."""
        for part in parts:
            yield part
            if self.seen.unknown.is_enough:
                self._tell_unknown()

    @contextmanager
    def reading(
        self,
        output: str,
        invalid: str | None,
        *,
        fate: str,
        source: Callable[[Sequence[str]], Iterable[Item]] | None = None,
    ) -> Iterator[Iterator[Item]]:
        """Give the sentences, for what is written otherwise.

        Args:
            output: what is written to.
            invalid: a file for broken sentences.
            fate: of these without such a file, in a note.
            source: reads files that are not read as they are for `write`.

        Raises:
            ConfigError: two outputs would be one.
        """
        self._check_apart(output, invalid)
        fate = fate if invalid is None else f"written to {invalid}"
        with (
            self._telling(invalid, fate),
            self.usable() as files,
            self._bar(output) as on_progress,
        ):
            if source is not None:
                yield self.watched(source(files))
            else:
                items = self._annotation.read(files, self._model, self._path, on_progress)
                yield self.watched(items)

    def watched(self, items: Iterable[Item]) -> Iterator[Item]:
        """Pass items on; see `Annotation.watched`."""
        for item in self._annotation.watched(items, self._model, self.seen, self._on_broken):
            if self.seen.unknown.is_enough:
                self._tell_unknown()
            yield item

    def _tell_unknown(self) -> None:
        """Say once where words and tags are none that the model learnt."""
        known = getattr(self._model, "known", None)
        if known is None or self._has_told:
            return
        self._has_told = True
        has_retag = self._annotation.work == "parse" and self._model.has_tagger
        way_out = ", as --retag does" * has_retag
        for warning in self.seen.unknown.warnings(known, way_out):
            note(f"warning: {warning}")

    @contextmanager
    def _telling(self, invalid: str | None, fate: str) -> Iterator[None]:
        """Within the block, say which sentences are broken, and write them to a file if asked."""
        num_broken = 0

        def tell(broken: Broken) -> None:
            nonlocal num_broken
            num_broken += 1
            if num_broken <= MAX_SHOWN:
                note(f"{fate}: {broken.error}")

        self._on_broken = tell
        if invalid is None:
            yield
        else:
            from seqtool.treebank.conllu import open_target

            with open_target(invalid) as file:

                def keep(broken: Broken) -> None:
                    tell(broken)
                    file.write(f"# {broken.error}\n{broken.to_conllu()}".encode())

                self._on_broken = keep
                yield
        if num_broken > MAX_SHOWN:
            note(f"{counted(num_broken, 'broken sentence')} {fate} in all")
        self._tell_unknown()
        if self.seen.is_decomposed:
            note(
                "warning: there are letters that are written in parts (Unicode NFD), and a model "
                "that learnt whole letters (NFC) does not know such words: bring the text into "
                "NFC first, see `seqtool help troubleshooting`"
            )

    @property
    def leaves_out(self) -> bool:
        """Whether files that cannot be read are left out."""
        return self._annotation.skip_invalid

    @contextmanager
    def usable(self) -> Iterator[Sequence[str]]:
        """Give the files; those that cannot be read are left out if broken sentences are."""
        if not self._annotation.skip_invalid:
            yield self._files
            return
        from seqtool.parsing.annotation import usable_files

        left_out: list[DataError] = []

        def tell(error: DataError) -> None:
            left_out.append(error)
            if len(left_out) <= MAX_SHOWN:
                note(f"left out: {error}")

        is_text = self._annotation.layout is not None
        files = usable_files(self._files, tell, texts=is_text)
        yield files
        if left_out:
            num = len(left_out) + len(files)
            note(f"{len(left_out):,} of {counted(num, 'file')} left out")

    @contextmanager
    def _bar(self, output: str) -> Iterator[OnProgress | None]:
        """Show how much is read, unless what is written goes to the same terminal."""
        from seqtool.core.progress import progress_bar

        if output == "-" and terminal.stream().isatty():
            yield None
            return
        with progress_bar(DOING[self._annotation.work], is_bytes=True) as on_progress:
            yield on_progress

    def _check_apart(self, output: str, invalid: str | None) -> None:
        """Refuse to write over a text, which cannot be had back, or two outputs to one file.

        A treebank may be written over where it, or its directory, is named as the output; but not
        because it happens to lie in the directory that is.
        """
        from seqtool.core.checkpoint import HEADER
        from seqtool.core.storage import refuse_input

        if is_folder(output) and (Path(output) / HEADER).is_file():
            raise OutputError(
                "is a model, among whose files texts would be written",
                hint="name another directory, or a file, with -o",
                path=output,
            )
        if self._annotation.layout is None and is_folder(output):
            named = set(self._files)
            for name, written in self._targets(Path(output)).items():
                if name in named and os.path.realpath(written) == os.path.realpath(name):
                    refuse_input(written, [written])
        if self._annotation.layout is not None and output != "-":
            read = set(map(os.path.realpath, self._read_from()))
            for target in self._written_to(output):
                if os.path.realpath(target) in read:
                    refuse_input(target, [target])
        if invalid is None:
            return
        refuse_input(invalid, self._read_from())
        if self._is_written_to(output, invalid):
            what = f"broken sentences and all others would both be written to {invalid}"
            raise ConfigError(what, hint="name another file with --invalid")

    def _is_written_to(self, output: str, path: str) -> bool:
        """Return whether a file, or stdout, is one that sentences are written to."""
        if "-" in (output, path):
            return output == path
        return os.path.realpath(path) in map(os.path.realpath, self._written_to(output))

    def _written_to(self, output: str) -> Collection[str | Path]:
        """Return the files that sentences are written to."""
        return self._targets(Path(output)).values() if is_folder(output) else [output]

    def _read_from(self) -> list[str]:
        """Return the files that are read."""
        from seqtool.core.reading import find_files

        is_text = self._annotation.layout is not None
        found: list[str] = []
        for given in self._files:  # one that is missing may be told of later, and left out
            is_directory = Path(given).is_dir()
            found += find_files([given], treebanks=not is_text) if is_directory else [given]
        return found

    def write_items(self, items: Iterable[Item], output: str) -> None:
        """Write sentences that were annotated; see `write`."""
        self.write_parts(self._annotation.written(items), output)

    def write_parts(self, parts: Iterator[Part], output: str, *, is_conllu: bool = True) -> None:
        """Write what has become of files; see `write`. What is no CoNLL-U keeps its name."""
        from seqtool.treebank.conllu import write_pieces
        from seqtool.treebank.layouts import document_id

        if not is_folder(output):
            write_pieces((content for _, content in parts), output)
            return
        targets = self._targets(Path(output), is_conllu=is_conllu)
        read = set(map(os.path.realpath, targets))
        # the sentences of a text tell its name as the id of a document
        names = {document_id(name): name for name in targets}
        for path, own in groupby(parts, key=lambda part: part[0]):
            target = targets.pop(names.get(path, path))
            target.parent.mkdir(parents=True, exist_ok=True)
            write_pieces((content for _, content in own), target)
        # of files that are empty or left out, what an earlier run wrote does not stay
        for target in targets.values():
            if target.is_file() and os.path.realpath(target) not in read:
                write_pieces((), target)

    def _targets(self, folder: Path, *, is_conllu: bool = True) -> dict[str, Path]:
        """Return where what becomes of each file goes; those of a directory keep their folders.

        Raises:
            ConfigError: two would be one, or a text comes from stdin.
        """
        from seqtool.core.reading import STDIN, find_files

        targets: dict[str, Path] = {}
        sources: dict[Path, str] = {}
        is_text = self._annotation.layout is not None
        for given in self._files:
            for name in find_files([given], treebanks=not is_text):
                if name == STDIN:
                    raise ConfigError(
                        "what comes from stdin has no name in a directory",
                        hint=f"name a file: -o {folder / 'stdin.conllu'}",
                    )
                path = Path(name)
                own = path.relative_to(given) if Path(given).is_dir() else Path(path.name)
                if is_text and is_conllu and self._annotation.form == "conllu":
                    own = _as_conllu(own)
                target = folder / own
                if target in sources:
                    raise ConfigError(
                        f"{sources[target]} and {name} would both be written to {target}",
                        hint="rename one, or give their directory, whose folders are kept",
                    )
                targets[name], sources[target] = target, name
        return targets


def _as_conllu(path: Path) -> Path:
    """Return the name of a text's file as one of CoNLL-U: letter.txt.gz is letter.conllu.gz."""
    from seqtool.core.reading import unpacked_name

    unpacked = path.with_suffix("") if unpacked_name(path) != path.name.lower() else path
    packed = path.suffix if path.suffix.lower() in (".gz", ".zst") else ""  # no others are written
    return unpacked.with_suffix(f".conllu{packed}")
