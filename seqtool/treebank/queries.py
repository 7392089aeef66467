"""Words by their columns: `filter`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from seqtool.core.errors import ConfigError, did_you_mean
from seqtool.treebank.sentence import COLUMNS, Sentence, Token

FIELDS = tuple(name.lower() for name in COLUMNS)
MAPPINGS = ("feats", "misc")

Wanted = Callable[[Token], bool]


def filter(sentences: Iterable[Sentence] | Sentence, **wanted: Any) -> list[Token]:
    r"""Return the words that have all of some columns, in order.

    >>> import seqtool
    >>> sentences = list(seqtool.read_conllu(
    ...     "1\tDogs\tdog\tNOUN\t_\tNumber=Plur\t2\tnsubj\t_\t_\n"
    ...     "2\tsleep\tsleep\tVERB\t_\t_\t0\troot\t_\t_\n"
    ... ))
    >>> seqtool.filter(sentences, deprel="nsubj", upos="NOUN")
    [<Token 1 'Dogs' nsubj of 2>]
    >>> seqtool.filter(sentences, feats__Number="Plur") == seqtool.filter(sentences, id=1)
    True
    >>> seqtool.filter(sentences, form=lambda form: form.endswith("p"))
    [<Token 2 'sleep' root of 0>]

    The queries are those of `conllu.TokenList.filter`; multiword tokens and empty nodes are not
    asked.

    Args:
        sentences: a `Doc`, any sentences, or a single one.
        wanted: column, in small letters, -> its value; `feats__Case` and `misc__Gloss` name an item
            of these two. `id` and `head` are numbers. None asks for words without a value. A
            function is called with the value, and says True for the words that are wanted.

    Raises:
        ConfigError: no column has that name.
    """
    found = wants(wanted)
    given = [sentences] if isinstance(sentences, Sentence) else sentences
    return [token for sentence in given for token in sentence if found(token)]


def wants(wanted: Mapping[str, Any]) -> Wanted:
    """Return what says of a word whether it is wanted; see `filter`."""
    tests = [_test(name, value) for name, value in wanted.items()]
    return lambda token: all(test(token) for test in tests)


def _test(name: str, value: Any) -> Wanted:
    field, _, item = name.partition("__")
    if field not in FIELDS or bool(item) != (field in MAPPINGS):
        known = [*(field for field in FIELDS if field not in MAPPINGS), "feats__NAME", "misc__NAME"]
        message = f"{name} is no column that can be asked for"
        raise ConfigError(message, hint=did_you_mean(name, known))

    def read(token: Token) -> Any:
        if item:
            return getattr(token, field).get(item)
        found = getattr(token, field)
        # a word or lemma may be `_` itself
        return None if found in ("_", []) and field not in ("form", "lemma") else found

    if callable(value):
        return lambda token: value(read(token)) is True
    return lambda token: read(token) == value
