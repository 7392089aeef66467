"""`Doc`: the sentences of a text, as a list, as rows, and as `TokenList`s of the library conllu."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, overload

from seqtool.core.errors import ConfigError, DataError, counted
from seqtool.core.reading import whole_text
from seqtool.treebank.conllu import read_conllu, refuse_no_sentence, to_misc
from seqtool.treebank.queries import filter as filter_words
from seqtool.treebank.sentence import (
    FIELDS,
    FORM,
    HEAD,
    ID,
    LEMMA,
    MISC,
    Sentence,
    Token,
    parse_sentence,
)

if TYPE_CHECKING:
    from conllu import SentenceList, TokenList
    from pandas import DataFrame


ROW = ("sentence", "sent_id", *FIELDS, "multiword", "start", "end")  # the columns of `Doc.to_df`


def rebuild(sentences: Iterable[Sentence]) -> str:
    """Return the text that sentences were split from."""
    return "".join(sentence.written() for sentence in sentences)


class Doc(Sequence[Sentence]):
    r"""Sentences together: a sequence of them, with what is asked of all.

    >>> import seqtool
    >>> doc = seqtool.Doc.from_conllu(
    ...     "1\tDogs\tdog\tNOUN\t_\tNumber=Plur\t2\tnsubj\t_\t_\n"
    ...     "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
    ... )
    >>> doc
    <Doc of 1 sentence, 2 words>
    >>> for token in doc[0]:
    ...     print(token.form, token.head, token.deprel, doc.text[token.start : token.end])
    Dogs 2 nsubj Dogs
    sleep 0 root sleep
    >>> doc.filter(feats__Number="Plur")
    [<Token 1 'Dogs' nsubj of 2>]

    Args:
        sentences: a list of them, or one; kept as they are, and placed one after another:
            `Token.start` counts from the beginning of the first.
    """

    def __init__(self, sentences: Iterable[Sentence] | Sentence = ()) -> None:
        items = [sentences] if isinstance(sentences, Sentence) else sentences
        self.sentences = [refuse_no_sentence(sentence) for sentence in items]
        offset = 0
        for sentence in self.sentences:
            sentence.offset = offset
            offset += len(sentence.written())

    @classmethod
    def from_conllu(cls, source: str | Path | bytes | IO[str] | IO[bytes]) -> Doc:
        """Return the sentences of CoNLL-U, whether or not they have trees.

        Args:
            source: as of `read_conllu`: text, bytes, an open file, or the path of one.

        Raises:
            DataError: a broken sentence, with its line, or none at all.
        """
        return cls(read_conllu(source, check="columns", skip_option=""))

    @classmethod
    def from_tokenlists(cls, tokenlists: Iterable[Sequence[Mapping[str, Any]]]) -> Doc:
        """Return the sentences of `conllu.TokenList`s, as `conllu.parse` gives them.

        Columns beyond the ten of CoNLL-U go to column MISC.

        Raises:
            DataError: what CoNLL-U cannot hold.
        """
        return cls(from_tokenlist(item, number) for number, item in enumerate(tokenlists, start=1))

    def __len__(self) -> int:
        return len(self.sentences)

    @overload
    def __getitem__(self, place: int) -> Sentence: ...
    @overload
    def __getitem__(self, place: slice) -> Doc: ...
    def __getitem__(self, place: int | slice) -> Sentence | Doc:
        """Return the sentence at a place, from 0 on; or a `Doc` of copies of a slice of them."""
        if isinstance(place, slice):
            return Doc(sentence.copy() for sentence in self.sentences[place])
        return self.sentences[place]

    def __iter__(self) -> Iterator[Sentence]:
        return iter(self.sentences)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Doc):
            return NotImplemented
        return self.to_conllu() == other.to_conllu()

    __hash__ = None  # type: ignore[assignment]  # sentences may change

    def __repr__(self) -> str:
        return f"<Doc of {counted(len(self), 'sentence')}, {counted(self.num_words, 'word')}>"

    @property
    def num_words(self) -> int:
        """The number of words; a multiword token counts as its words."""
        return sum(map(len, self.sentences))

    @property
    def words(self) -> Iterator[Token]:
        """The words of all sentences, one after another."""
        return (token for sentence in self.sentences for token in sentence)

    @property
    def text(self) -> str:
        """The text that its words and the spaces between them make; see `Token.start`."""
        return rebuild(self.sentences)

    def to_conllu(self) -> str:
        """Return all sentences as they stand in a file; `write_conllu(doc, path)` writes one."""
        return "".join(sentence.to_conllu() for sentence in self.sentences)

    def to_tokenlists(self) -> SentenceList:
        """Return the sentences as `conllu.parse` gives them: a list of `conllu.TokenList`.

        Raises:
            DataError: a HEAD that is no number.
        """
        from conllu import SentenceList

        return SentenceList([to_tokenlist(sentence) for sentence in self.sentences])

    def to_rows(self) -> list[dict[str, Any]]:
        """Return a row for each word, as `to_df` has them.

        `sentence` is the number of the sentence, from 1 on, `sent_id` its name, `multiword` the
        multiword token that the word is of; `id` and `head` are numbers, `start` and `end` its
        place in `text`; the other columns are as in the file. None stands where there is nothing.
        """
        rows: list[dict[str, Any]] = []
        for number, sentence in enumerate(self.sentences, start=1):
            multiword = {
                word: columns[FORM]
                for first, last, columns in sentence.multiword_tokens()
                for word in range(first, last + 1)
            }
            name = sentence.sent_id or None
            for token, columns, span in zip(sentence, sentence.rows, sentence.spans(), strict=True):
                values: list[Any] = [None if text == "_" else text for text in columns]
                if columns[FORM] == "_":  # the word itself, and then its lemma
                    values[FORM], values[LEMMA] = "_", columns[LEMMA]
                values[ID], values[HEAD] = token.number, token.head
                whole = multiword.get(token.number)
                row = (number, name, *values, whole, *span)
                rows.append(dict(zip(ROW, row, strict=True)))
        return rows

    def to_df(self) -> DataFrame:
        """Return a table of pandas with a row for each word; see `to_rows`.

        Numbers are of pandas' type Int64, all else is of its type string: `<NA>` stands for what is
        missing, in every column.

        Raises:
            ConfigError: pandas is not installed.
            DataError: a HEAD that is no number.
        """
        try:
            import pandas
        except ImportError as error:
            hint = "pip install pandas, or take doc.to_rows()"
            raise ConfigError("pandas is not installed", hint=hint) from error
        numbers = ("sentence", "id", "head", "start", "end")
        table = pandas.DataFrame(self.to_rows(), columns=list(ROW))
        return table.astype({name: "Int64" if name in numbers else "string" for name in ROW})

    def filter(self, *queries: str, **wanted: Any) -> list[Token]:
        """Return the words that are asked for; see `seqtool.filter`."""
        return filter_words(self.sentences, *queries, **wanted)

    def _repr_html_(self) -> str:
        """Return pictures of the first trees, for a notebook."""
        from seqtool.treebank.drawing.rendering import inline_html

        return inline_html(self.sentences)


def to_tokenlist(sentence: Sentence) -> TokenList:
    """Return a sentence as a `TokenList`, its columns as `conllu.parse` gives them.

    Multiword tokens and empty nodes are in it. Of several comments of one name the last one stays;
    a comment without a value keeps its name, which `conllu.parse` drops.

    Raises:
        DataError: a column that the library cannot take, as a HEAD that is no number.
    """
    from conllu import Metadata, Token, TokenList
    from conllu.exceptions import ParseException
    from conllu.parser import DEFAULT_FIELD_PARSERS as PARSERS

    # `conllu.parse` itself would take two spaces in a word for the end of a column
    lines = sentence.to_conllu().rstrip("\n").split("\n")[len(sentence.comments) :]
    try:
        tokens = [
            Token(
                (name, PARSERS[name](row, index) if name in PARSERS else row[index])
                for index, name in enumerate(FIELDS)
            )
            for row in (line.split("\t") for line in lines)
        ]
    except ParseException as error:
        raise DataError(
            f"a token cannot be a conllu.Token: {error}",
            hint="write a word number or _ into column HEAD",
            path=sentence.path or None,
            line=sentence.line or None,
        ) from error
    return TokenList(tokens, Metadata(sentence.metadata), default_fields=FIELDS)


def from_tokenlist(tokenlist: Sequence[Mapping[str, Any]], number: int = 1) -> Sentence:
    """Return a `TokenList` as a sentence; trees are not checked.

    Columns that are not there are `_`, and words without `id` are numbered.

    Args:
        tokenlist: the tokens; its metadata become comments.
        number: of the sentence, for a message.

    Raises:
        DataError: what no CoNLL-U file can hold.
    """
    from conllu.exceptions import ParseException
    from conllu.serializer import serialize_field

    metadata = getattr(tokenlist, "metadata", None) or {}
    lines = [f"# {key} = {value}" if value else f"# {key}" for key, value in metadata.items()]
    num_words = 0
    try:
        for token in tokenlist:
            if not isinstance(head := token.get("head"), int | str | None):
                raise ValueError(f"a token has the head {head!r}, which is no whole number")
            texts = {name: serialize_field(value) for name, value in token.items()}
            columns = [texts.pop(name, "_") for name in FIELDS]
            if columns[ID] == "_":
                columns[ID] = str(num_words + 1)
            num_words += columns[ID].isdecimal()
            columns[MISC] = to_misc(columns[MISC], texts)
            if any("\n" in column or "\t" in column for column in columns):
                raise ValueError(f"token {columns[FORM]!r} holds a tab or line end")
            lines.append("\t".join(columns))
        return parse_sentence(whole_text("\n".join(lines)), "", 1, "columns")
    except (DataError, ParseException, TypeError, IndexError, ValueError) as error:
        what = getattr(error, "message", str(error))
        message = f"TokenList {number} cannot be a sentence: {what}"
        raise DataError(message, hint="mend the token") from error
