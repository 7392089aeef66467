"""Sentences as the `TokenList`s of the library conllu, both ways.

What a `TokenList` has beside the ten columns, as one of CoNLL-U Plus does, goes to column MISC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqtool.core.errors import DataError
from seqtool.core.reading import whole_text
from seqtool.treebank.plus import to_misc
from seqtool.treebank.sentence import COLUMNS, FORM, HEAD, ID, Sentence, parse_sentence

if TYPE_CHECKING:
    from conllu import SentenceList, TokenList

FIELDS = tuple(name.lower() for name in COLUMNS)
_OLDER = {"upostag": "upos", "xpostag": "xpos"}  # names that earlier versions of conllu gave


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

    rows = list(sentence.rows)
    for position, line in reversed(sentence.extras):
        rows.insert(position, line.split("\t"))
    tokens = []
    for row in rows:
        try:
            values = {
                name: PARSERS[name](row, index) if name in PARSERS else row[index]
                for index, name in enumerate(FIELDS)
            }
        except ParseException as error:
            raise DataError(
                f"token {row[ID]} cannot be a conllu.Token: {error}",
                hint=f"write a word number or _ into column {COLUMNS[HEAD]}",
                path=sentence.path or None,
                line=sentence.line or None,
            ) from error
        tokens.append(Token(values))
    return TokenList(tokens, Metadata(sentence.metadata), default_fields=FIELDS)


def to_tokenlists(sentences: Sequence[Sentence]) -> SentenceList:
    """Return sentences as the list that `conllu.parse` gives; see `to_tokenlist`."""
    from conllu import SentenceList

    return SentenceList([to_tokenlist(sentence) for sentence in sentences])


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

    lines = []
    for key, value in (getattr(tokenlist, "metadata", None) or {}).items():
        lines.append(f"# {key} = {value}" if value else f"# {key}")
    num_words = 0
    for token in tokenlist:
        if not isinstance(token, Mapping):
            raise TypeError(f"expected tokens, as conllu.parse gives them, but got {token!r}")
        given = {_OLDER.get(name, name): value for name, value in token.items()}
        try:
            columns = [serialize_field(given.get(name)) for name in FIELDS]
            others = {
                name: serialize_field(value) for name, value in given.items() if name not in FIELDS
            }
        except (ParseException, TypeError, IndexError) as error:
            raise _refused(number, str(error)) from error
        if not isinstance(head := given.get("head"), int | str | None):
            raise _refused(number, f"a token has the head {head!r}, which is no whole number")
        if given.get("form") == "":
            raise _refused(number, "a token has an empty form")
        if columns[ID] == "_":
            columns[ID] = str(num_words + 1)
        num_words += columns[ID].isdecimal()
        columns[-1] = to_misc(columns[-1], others)
        if any("\n" in column or "\t" in column for column in columns):
            raise _refused(number, f"token {columns[ID]} {columns[FORM]!r} holds a tab or line end")
        lines.append("\t".join(columns))
    try:
        text = whole_text("\n".join(lines))
        return parse_sentence(text, "", 1, "columns")
    except DataError as error:
        raise _refused(number, error.message, error.hint) from error


def _refused(number: int, message: str, hint: str = "mend the token") -> DataError:
    return DataError(f"TokenList {number} cannot be a sentence: {message}", hint=hint)
