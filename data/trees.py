"""Derivations as CoNLL-U: running text, spacing, multiword tokens."""

from __future__ import annotations

from grammar import Derivation


def _capital(form: str) -> str:
    return form[:1].upper() + form[1:]


def tokens_of(derivation: Derivation, lowercase: bool) -> list[str]:
    """The syntactic words as the text files have them."""
    forms = [word.form for word in derivation.words]
    return [form.lower() for form in forms] if lowercase else forms


def conllu(derivation: Derivation, sent_id: str) -> str:
    """One sentence in CoNLL-U, ending in an empty line."""
    words = derivation.words
    forms = [word.form for word in words]
    forms[0] = _capital(forms[0])
    groups: list[list[int]] = []
    for index, word in enumerate(words):
        if word.glue == "+":
            groups[-1].append(index)
        else:
            groups.append([index])
    text, lines = "", []
    for number, group in enumerate(groups):
        surface = "".join(forms[i] for i in group)
        following = words[groups[number + 1][0]] if number + 1 < len(groups) else None
        close = following is not None and following.glue == "~"
        text += surface + ("" if close or following is None else " ")
        misc = "SpaceAfter=No" if close else "_"
        if len(group) > 1:
            span = f"{group[0] + 1}-{group[-1] + 1}"
            lines.append("\t".join([span, surface, *"_______", misc]))
            misc = "_"
        for i in group:
            word = words[i]
            columns = [str(i + 1), forms[i], word.lemma, word.upos, word.xpos, word.feats]
            columns += [str(derivation.heads[i] + 1), derivation.relations[i], "_", misc]
            lines.append("\t".join(columns))
    return "\n".join([f"# sent_id = {sent_id}", f"# text = {text}", *lines]) + "\n\n"
