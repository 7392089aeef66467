"""Korean particles and conjugation: the paradigms that `grammar-ko.txt` names.

Hangul syllables are taken apart into (initial, vowel, final) numbers and put together again;
a final of 0 is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grammar import Paradigm, Word, make_word

_BASE = 0xAC00
_VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
_FINALS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_NONE, _L, _B, _D, _S = (_FINALS.index(letter) for letter in " ㄹㅂㄷㅅ")
# stem vowel + 아/어 in one syllable
_FUSED = {"ㅗ": "ㅘ", "ㅜ": "ㅝ", "ㅣ": "ㅕ", "ㅚ": "ㅙ"}
_SILENT = "ㅏㅐㅓㅔㅕ"


def apart(syllable: str) -> tuple[int, int, int]:
    """Initial, vowel and final of a syllable."""
    initial, rest = divmod(ord(syllable) - _BASE, 588)
    return initial, *divmod(rest, 28)


def together(initial: int, vowel: int, final: int) -> str:
    """The syllable of an initial, a vowel and a final."""
    return chr(_BASE + initial * 588 + vowel * 28 + final)


def final_of(word: str) -> int:
    """Number of the final consonant of the last syllable."""
    return apart(word[-1])[2]


def with_final(word: str, final: str) -> str:
    """Give the last syllable, which is open, a final consonant."""
    initial, vowel, _ = apart(word[-1])
    return word[:-1] + together(initial, vowel, _FINALS.index(final))


def without_final(word: str) -> str:
    """Drop the final consonant of the last syllable."""
    initial, vowel, _ = apart(word[-1])
    return word[:-1] + together(initial, vowel, _NONE)


class Stem:
    """A verb's or adjective's stem with the three bases that endings attach to.

    Attributes:
        plain: before ㄱ, ㄷ, ㅈ and ㅅ of -습니다: 먹, 걷, 돕.
        linked: before (으)-endings, with 으 where the stem needs it: 먹으, 걸으, 도우, 가.
        open: before 아/어-endings, fused: 먹어, 걸어, 도와, 가.
    """

    def __init__(self, dictionary_form: str) -> None:
        citation, _, irregular = dictionary_form.partition("/")
        self.plain = citation.removesuffix("다")
        body, final = without_final(self.plain), final_of(self.plain)
        if irregular == "ㅂ":
            self.linked = body + "우"
            self.open = body + ("와" if self.plain in ("돕", "곱") else "워")
        elif irregular == "ㄷ":
            self.linked = with_final(body, "ㄹ") + "으"
            self.open = with_final(body, "ㄹ") + self._harmony(body)
        elif irregular == "ㅅ":
            self.linked = body + "으"
            self.open = body + self._harmony(body)
        else:
            self.linked = self.plain if final in (_NONE, _L) else self.plain + "으"
            self.open = self._regular(irregular == "르")

    @staticmethod
    def _harmony(stem: str) -> str:
        return "아" if _VOWELS[apart(stem[-1])[1]] in "ㅏㅑㅗ" else "어"

    def _regular(self, doubles: bool) -> str:
        stem = self.plain
        initial, vowel_number, final = apart(stem[-1])
        vowel = _VOWELS[vowel_number]
        if stem.endswith("하"):
            return stem[:-1] + "해"
        if final != _NONE:
            return stem + self._harmony(stem)
        if vowel == "ㅡ":
            harmony = self._harmony(stem[:-1]) if len(stem) > 1 else "어"
            sound = _VOWELS.index("ㅏ" if harmony == "아" else "ㅓ")
            before = with_final(stem[:-1], "ㄹ") if doubles else stem[:-1]
            return before + together(initial, sound, _NONE)
        if vowel in _SILENT:
            return stem
        if vowel in _FUSED:
            return stem[:-1] + together(initial, _VOWELS.index(_FUSED[vowel]), _NONE)
        return stem + self._harmony(stem)

    @property
    def past(self) -> str:
        """The past base: 먹었, 갔, 했."""
        return with_final(self.open, "ㅆ")

    @property
    def soft(self) -> str:
        """The stem before ㄴ and 시, where a final ㄹ falls away."""
        return without_final(self.plain) if final_of(self.plain) == _L else self.plain

    def joined(self, consonant: str) -> str:
        """(으)ㄴ or (으)ㄹ: 먹은, 간, 만든."""
        linked = without_final(self.linked) if final_of(self.linked) == _L else self.linked
        return with_final(linked, consonant)

    def honorific(self) -> Stem:
        """The stem with (으)시."""
        linked = without_final(self.linked) if final_of(self.linked) == _L else self.linked
        return Stem(linked + "시다")


# ending -> (lemma and tag of the morphemes after the stem, features)
_PAST, _PRESENT = "Mood=Ind|Tense=Past|VerbForm=Fin", "Mood=Ind|Tense=Pres|VerbForm=Fin"
_ENDINGS: dict[str, tuple[str, str, str]] = {
    "past": ("었+다", "EP+EF", _PAST),
    "pres": ("다", "EF", _PRESENT),
    "polite": ("었+어요", "EP+EF", "Mood=Ind|Polite=Form|Tense=Past|VerbForm=Fin"),
    "ask": ("었+니", "EP+EF", "Mood=Int|Tense=Past|VerbForm=Fin"),
    "asknow": ("니", "EF", "Mood=Int|Tense=Pres|VerbForm=Fin"),
    "adnpast": ("ㄴ", "ETM", "Tense=Past|VerbForm=Part"),
    "adnpres": ("는", "ETM", "Tense=Pres|VerbForm=Part"),
    "and": ("고", "EC", "VerbForm=Conv"),
    "because": ("어서", "EC", "VerbForm=Conv"),
    "if": ("면", "EC", "VerbForm=Conv"),
    "but": ("었+지만", "EP+EC", "Tense=Past|VerbForm=Conv"),
    "that": ("었+다고", "EP+EC", "Mood=Ind|Tense=Past|VerbForm=Fin"),
    "thatnow": ("다고", "EC", "Mood=Ind|Tense=Pres|VerbForm=Fin"),
    "not": ("지", "EC", "VerbForm=Conv"),
}


def _form(stem: Stem, ending: str, verbal: bool) -> str:
    """A stem with an ending; `verbal` stems take ㄴ다/는다 and 는, others 다 and ㄴ/은."""
    closed = final_of(stem.plain) not in (_NONE, _L)
    present = stem.plain + "다"
    if verbal:
        present = stem.plain + "는다" if closed else with_final(stem.soft, "ㄴ") + "다"
    forms = {
        "past": stem.past + "다",
        "pres": present,
        "polite": stem.past + "어요",
        "ask": stem.past + "니",
        "asknow": stem.soft + "니",
        "adnpast": stem.joined("ㄴ"),
        "adnpres": stem.soft + "는" if verbal else stem.joined("ㄴ"),
        "and": stem.plain + "고",
        "because": stem.open + "서",
        "if": stem.linked + "면",
        "but": stem.past + "지만",
        "that": stem.past + "다고",
        "thatnow": present + "고",
        "not": stem.plain + "지",
    }
    return forms[ending]


def _conjugate(
    symbol: str, category: str, entry: str, upos: str, tag: str, verbal: bool
) -> Iterator[tuple[str, Word]]:
    plain, _, respectful = entry.partition("+")
    stem = Stem(plain)
    honorific = Stem(respectful) if respectful else stem.honorific()
    for ending, (lemma, tags, feats) in _ENDINGS.items():
        is_verbal = verbal or (stem.plain.endswith(("있", "없")) and ending == "adnpres")
        if ending == "adnpres" and not is_verbal:
            lemma = "ㄴ"
        yield (
            f"{symbol}[{category},{ending},p]",
            Word(
                _form(stem, ending, is_verbal),
                f"{stem.plain}+{lemma}",
                upos,
                f"{tag}+{tags}",
                feats,
            ),
        )
        base = honorific.plain if respectful else f"{stem.plain}+시"
        tag_h = tag if respectful else f"{tag}+EP"
        feats_h = "|".join(sorted([*feats.split("|"), "Polite=Elev"]))
        if "Polite=Form" in feats:
            feats_h = feats.replace("Polite=Form", "Polite=Elev,Form")
        yield (
            f"{symbol}[{category},{ending},h]",
            Word(
                _form(honorific, ending, verbal or bool(respectful)),
                f"{base}+{lemma}",
                upos,
                f"{tag_h}+{tags}",
                feats_h,
            ),
        )


def verb(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`먹다+드시다` (with its own honorific), `걷다/ㄷ` (irregular)."""
    return _conjugate("V", category, entry, "VERB", "VV", verbal=True)


def existence(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """있다 and 없다, whose present is that of an adjective."""
    for symbol, word in _conjugate("V", category, entry, "VERB", "VV", verbal=False):
        if ",adnpast," in symbol:
            form = Stem(word.lemma.partition("+")[0] + "다").plain + "던"
            word = replace(word, form=form, lemma=word.lemma.replace("+ㄴ", "+던"))
        yield symbol, word


def adjective(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`예쁘다`, `춥다/ㅂ`."""
    return _conjugate("A", category, entry, "ADJ", "VA", verbal=False)


def auxiliary(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`있다+계시다`, `않다`, `싶다`."""
    return _conjugate("X", category, entry, "AUX", "VX", verbal=category == "not")


# case -> (particle after a vowel, after a consonant, tag, features)
_PARTICLES: dict[str, tuple[str, str, str, str]] = {
    "nom": ("가", "이", "JKS", "Case=Nom"),
    "top": ("는", "은", "JX", "_"),
    "acc": ("를", "을", "JKO", "Case=Acc"),
    "dat": ("에게", "에게", "JKB", "Case=Dat"),
    "loc": ("에서", "에서", "JKB", "Case=Loc"),
    "goal": ("에", "에", "JKB", "Case=Loc"),
    "ins": ("로", "으로", "JKB", "Case=Ins"),
    "com": ("와", "과", "JC", "Case=Com"),
    "gen": ("의", "의", "JKG", "Case=Gen"),
    "also": ("도", "도", "JX", "_"),
}
_RESPECTFUL = {"nom": "께서", "dat": "께"}


def _decline(
    symbol: str, noun_form: str, upos: str, tag: str, respectful: bool = False
) -> Iterator[tuple[str, Word]]:
    final = final_of(noun_form)
    for case, (after_vowel, after_consonant, particle_tag, feats) in _PARTICLES.items():
        open_like = final == _NONE or (case == "ins" and final == _L)
        particle = after_vowel if open_like else after_consonant
        if respectful:
            particle = _RESPECTFUL.get(case, particle)
        yield (
            symbol.replace("*", case),
            Word(
                noun_form + particle,
                f"{noun_form}+{particle}",
                upos,
                f"{tag}+{particle_tag}",
                feats,
            ),
        )
    bare = Word(noun_form, noun_form, upos, tag, "_")
    yield symbol.replace("*", "bare"), bare
    copula = "다" if final == _NONE else "이다"
    past = "였다" if final == _NONE else "이었다"
    yield (
        symbol.replace("*", "is"),
        Word(noun_form + copula, f"{noun_form}+이+다", upos, f"{tag}+VCP+EF", _PRESENT),
    )
    yield (
        symbol.replace("*", "was"),
        Word(noun_form + past, f"{noun_form}+이+었+다", upos, f"{tag}+VCP+EP+EF", _PAST),
    )


def noun(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """A common noun with every particle."""
    return _decline(f"N[{category},*]", entry, "NOUN", "NNG", category == "elder")


def name(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """A proper noun with every particle."""
    return _decline(f"Name[{category},*]", entry, "PROPN", "NNP")


def closed(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """`form,lemma,UPOS,XPOS,FEATS` entries of a closed class, most frequent first."""
    form, lemma, upos, xpos, feats = entry.split(",")
    yield category, make_word(form, lemma, upos, xpos, feats)


def adverb(category: str, entry: str) -> Iterator[tuple[str, Word]]:
    """An adverb."""
    yield f"Adverb[{category}]", Word(entry, entry, "ADV", "MAG", "_")


PARADIGMS: dict[str, Paradigm] = {
    "verb": verb,
    "existence": existence,
    "adjective": adjective,
    "auxiliary": auxiliary,
    "noun": noun,
    "name": name,
    "adverb": adverb,
    "closed": closed,
}
