"""The notation of the grammar files, with features and head rules, compiled to a PCFG.

A grammar file has one statement per line; an indented line continues the one above, and `#`
starts a comment:

    feature C = person animal              a feature, named by a capital, and its values
    table subj(F,C):                       numbers to weigh rules with; missing entries are zero
      bark: animal 9, person 1
    share num(N): s 70, p 30               a table whose rows are normalised to sum to one
    S -> NP[C]:nsubj *VP[F] PP[C2]:obl?0.2  = 3 * subj(F,C)
    word Det the the DET DT Definite=Def 60
    noun animal: dog cat mouse/mice         a paradigm (`inflection.py`), Zipf weights by order

A rule is written once for all values of its variables (`C2` is a second variable over `C`). In
its body `*` marks the head, `:rel` names the relation to the head, `:rel@other` hangs the child on
the sibling whose relation is `other` (that is how a tree becomes non-projective), `^X` lifts the
words that a headless `X` leaves open, and `?p` makes a child optional with probability `p`.
Weights are normalised over all rules of one left-hand side, after rules that can never
terminate are dropped. A word form may begin with `~` (no space before it) or `+` (one
orthographic token with the word before it: a CoNLL-U multiword token).
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from grammar import Child, GrammarError, Paradigm, Pcfg, Rule, make_word

Bindings = dict[str, str]


def zipf_weight(rank: int) -> float:
    """Weight of the word at a 0-based rank of its list (Zipf-Mandelbrot)."""
    return math.pow(rank + 5.0, -0.7)


_SYMBOL = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\[[^\]]*\])?")
_CHILD = re.compile(
    r"([*^]?)([A-Za-z]\w*(?:\[[^\]]*\])?)(?::([a-z:]+))?(?:@([a-z:]+))?(?:\?([\d.]+))?"
)
_VARIABLE = re.compile(r"[A-Z]\d?")
_CALL = re.compile(r"(\w+)\(([^)]*)\)")


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, statement): comments gone, indented lines joined by a newline."""
    number, statement = 0, ""
    for line_number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#", 1)[0].rstrip()
        if not line:
            continue
        if line[0] == " ":
            statement += "\n" + line.strip()
            continue
        if statement:
            yield number, statement
        number, statement = line_number, line
    if statement:
        yield number, statement


class GrammarReader:
    """Reads a grammar file's statements and compiles them into a `Pcfg`."""

    def __init__(self, paradigms: dict[str, Paradigm]) -> None:
        self._paradigms = paradigms
        self._features: dict[str, list[str]] = {}
        self._tables: dict[str, dict[tuple[str, ...], float]] = {}
        self._weighted: dict[str, list[tuple[float, Rule]]] = defaultdict(list)
        self._origins: dict[str, list[Rule]] = defaultdict(list)  # rule as written -> instances

    def read(self, text: str, start: str) -> Pcfg:
        """Compile a grammar.

        Raises:
            GrammarError: with the line of the first statement that cannot be read.
        """
        # Rules weigh themselves with tables, which may stand below them.
        statements = sorted(_statements(text), key=lambda s: "->" in s[1])
        for number, statement in statements:
            try:
                self._statement(statement)
            except (GrammarError, ValueError, KeyError, IndexError) as error:
                raise GrammarError(f"line {number}: {error!r}: {statement[:80]}") from error
        return self._compile(start)

    def _statement(self, statement: str) -> None:
        keyword = statement.split(None, 1)[0]
        if keyword == "feature":
            name, values = statement[len("feature") :].split("=")
            self._features[name.strip()] = values.split()
        elif keyword in ("table", "share"):
            self._table(statement, normalised=keyword == "share")
        elif keyword == "word":
            self._word(statement.split()[1:])
        elif keyword in self._paradigms:
            self._entries(keyword, statement)
        elif "->" in statement:
            self._rule(statement.replace("\n", " "))
        else:
            raise GrammarError("neither a rule nor a known keyword")

    def _table(self, statement: str, normalised: bool) -> None:
        head, _, body = statement.partition(":")
        name, variables = _CALL.findall(head)[0]
        features = [self._features[v.strip()[0]] for v in variables.split(",")]
        table = self._tables.setdefault(name, {})
        for line in body.split("\n") if len(features) > 1 else [": " + body]:
            if not line.strip():
                continue
            first, _, rest = line.partition(":")
            entries = [entry.split() for entry in rest.split(",")]
            total = math.fsum(float(weight) for _, weight in entries) if normalised else 1.0
            for key, weight in entries:
                keys = [k for k in [first.strip(), *key.split(".")] if k]
                for k, values in zip(keys, features, strict=True):
                    if k not in values:
                        raise GrammarError(f"{k} is no value of {name}'s feature")
                if tuple(keys) in table:
                    raise GrammarError(f"{name}({','.join(keys)}) is given twice")
                table[tuple(keys)] = float(weight) / total

    def _word(self, fields: list[str]) -> None:
        symbol, form, lemma, upos, xpos, feats = fields[:6]
        weight = float(fields[6]) if len(fields) > 6 else 1.0
        word = make_word(form, lemma, upos, xpos, feats)
        for binding in self._bindings([symbol]):
            left = substitute(symbol, binding)
            self._weighted[left].append((weight, Rule(left, (), 0, 0.0, word)))

    def _entries(self, keyword: str, statement: str) -> None:
        head, _, body = statement.partition(":")
        category = head.split()[1]
        for rank, entry in enumerate(body.split()):
            for left, word in self._paradigms[keyword](category, entry):
                self._weighted[left].append((zipf_weight(rank), Rule(left, (), 0, 0.0, word)))

    def _rule(self, statement: str) -> None:
        left, _, rest = statement.partition("->")
        body, _, weight = rest.partition(" =")
        left = left.strip()
        children = [self._child(c) for c in body.split()]
        factors = [w.strip() for w in weight.split("*")] if weight.strip() else []
        constant = math.prod(float(f) for f in factors if "(" not in f)
        optional = [i for i, child in enumerate(children) if child[4] is not None]
        symbols = [left, *(c[1] for c in children)]
        for binding, value in self._weighings([f for f in factors if "(" in f], symbols):
            value *= constant
            for present in itertools.product((True, False), repeat=len(optional)):
                share = value
                kept = list(range(len(children)))
                for index, here in zip(optional, present, strict=True):
                    chance = float(children[index][4] or 0)
                    share *= chance if here else 1 - chance
                    if not here:
                        kept.remove(index)
                rule = self._instance(left, [children[i] for i in kept], binding)
                self._weighted[rule.left].append((share, rule))
                self._origins[statement].append(rule)

    @staticmethod
    def _child(text: str) -> tuple[str, str, str, str, str | None]:
        match = _CHILD.fullmatch(text)
        if match is None:
            raise GrammarError(f"cannot read {text!r}")
        mark, symbol, relation, target, chance = match.groups()
        return mark, symbol, relation or "", target or "", chance

    @staticmethod
    def _instance(
        left: str, parts: list[tuple[str, str, str, str, str | None]], binding: Bindings
    ) -> Rule:
        heads = [i for i, part in enumerate(parts) if part[0] == "*"]
        if len(parts) == 1 and not parts[0][2] and parts[0][0] != "^":
            heads = [0]
        if len(heads) > 1:
            raise GrammarError("two heads")
        relations = [part[2] for part in parts]
        children = []
        for index, (mark, symbol, relation, target, _) in enumerate(parts):
            if (index in heads) == bool(relation or mark == "^"):
                raise GrammarError(f"{symbol} needs one of *, ^ and a relation")
            at = relations.index(target) if target else -1
            children.append(Child(substitute(symbol, binding), relation, at, mark == "^"))
        return Rule(substitute(left, binding), tuple(children), heads[0] if heads else -1, 0.0)

    def _weighings(
        self, factors: list[str], symbols: list[str]
    ) -> Iterator[tuple[Bindings, float]]:
        """All bindings of the variables for which no factor is zero, with the factors' product."""
        bindings: list[tuple[Bindings, float]] = [({}, 1.0)]
        for factor in factors:
            name, arguments = _CALL.findall(factor)[0]
            variables = [argument.strip() for argument in arguments.split(",")]
            extended = []
            for binding, value in bindings:
                known = [binding.get(v, None if _VARIABLE.fullmatch(v) else v) for v in variables]
                for keys, weight in self._tables[name].items():
                    if weight > 0 and all(
                        k is None or k == key for k, key in zip(known, keys, strict=True)
                    ):
                        new = {v: k for v, k in zip(variables, keys, strict=True) if v != k}
                        extended.append(({**binding, **new}, value * weight))
            bindings = extended
        for binding, value in bindings:
            for rest in self._bindings(symbols, bound=binding):
                yield {**binding, **rest}, value

    def _bindings(self, symbols: Iterable[str], bound: Iterable[str] = ()) -> Iterator[Bindings]:
        """All values of the symbols' variables that are not bound yet."""
        found: dict[str, None] = {}
        for symbol in symbols:
            for part in symbol.partition("[")[2].rstrip("]").split(","):
                if _VARIABLE.fullmatch(part.strip()) and part.strip() not in bound:
                    found[part.strip()] = None
        names = list(found)
        for values in itertools.product(*(self._features[name[0]] for name in names)):
            yield dict(zip(names, values, strict=True))

    def _compile(self, start: str) -> Pcfg:
        productive = self._productive()
        rules: dict[str, list[Rule]] = {}
        agenda = [start]
        while agenda:
            left = agenda.pop()
            if left in rules:
                continue
            usable = [
                (weight, rule)
                for weight, rule in self._weighted.get(left, [])
                if all(c.symbol in productive for c in rule.children)
            ]
            if not usable:
                raise GrammarError(f"{left} has no rule that ends")
            total = math.fsum(weight for weight, _ in usable)
            rules[left] = [
                Rule(r.left, r.children, r.head, weight / total, r.word) for weight, r in usable
            ]
            agenda += [c.symbol for _, rule in usable for c in rule.children]
        for statement, instances in self._origins.items():
            if not any(
                rule.left in rules and all(c.symbol in productive for c in rule.children)
                for rule in instances
            ):
                raise GrammarError(f"no sentence can use: {statement}")
        _check_heads(rules)
        return Pcfg(start, rules)

    def _productive(self) -> set[str]:
        done: set[str] = set()
        growing = True
        while growing:
            growing = False
            for left, weighted in self._weighted.items():
                if left not in done and any(
                    all(c.symbol in done for c in rule.children) for _, rule in weighted
                ):
                    done.add(left)
                    growing = True
        return done


def _check_heads(rules: dict[str, list[Rule]]) -> None:
    """A symbol is headless in all of its rules or in none, and only a headless one is lifted."""
    headless = {left for left, group in rules.items() if group[0].head < 0}
    for left, group in rules.items():
        for rule in group:
            if (rule.head < 0) != (left in headless):
                raise GrammarError(f"{left} has a head in some rules only")
            for child in rule.children:
                if child.lifted != (child.symbol in headless):
                    raise GrammarError(f"{left}: {child.symbol} is headless and needs ^, or not")


def substitute(symbol: str, binding: Bindings) -> str:
    """Put a symbol's variables to their values."""
    name, bracket, inner = symbol.partition("[")
    if not bracket:
        return symbol
    parts = [part.strip() for part in inner.rstrip("]").split(",")]
    return f"{name}[{','.join(binding.get(part, part) for part in parts)}]"


def read_grammar(path: Path, paradigms: dict[str, Paradigm], start: str = "Text") -> Pcfg:
    """Compile a grammar file."""
    return GrammarReader(paradigms).read(path.read_text(encoding="utf-8"), start)
