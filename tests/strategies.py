"""What hypothesis draws for several test files."""

from __future__ import annotations

from hypothesis import strategies as st

# what a column may hold, and column FORM
values = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r"), min_size=1, max_size=6)
forms = values.filter(lambda form: not form.isspace())


def tree_heads(draw: st.DrawFn, num_words: int) -> list[int]:
    """Heads of any tree: each word but the first of a random order depends on one before it."""
    order = draw(st.permutations(range(1, num_words + 1)))
    heads = [0] * num_words
    for i, word in enumerate(order[1:], start=1):
        heads[word - 1] = order[draw(st.integers(0, i - 1))]
    return heads


@st.composite
def sentence_texts(draw: st.DrawFn, trees: bool = True) -> str:
    """Any sentence that CoNLL-U allows, with its last line end; without `trees`, HEAD is anything.

    Crossing arcs, comments, multiword tokens, empty nodes, and any character in every column.
    """
    num_words = draw(st.integers(1, 8))
    heads = tree_heads(draw, num_words)

    def line(identity: str, head: str) -> str:
        columns = draw(st.lists(values, min_size=7, max_size=7))
        form = draw(forms)
        return "\t".join((identity, form, *columns[:4], head, *columns[4:]))

    comment = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=8)
    lines = [f"#{text}" for text in draw(st.lists(comment, max_size=3))]
    covered = 0
    for word in range(num_words + 1):
        if word:
            if word > covered and draw(st.booleans()):
                covered = draw(st.integers(word, num_words))
                lines.append(line(f"{word}-{covered}", "_"))
            lines.append(line(str(word), str(heads[word - 1]) if trees else draw(values)))
        num_empty = draw(st.sampled_from((0, 0, 0, 1, 2)))
        lines += [line(f"{word}.{number}", "_") for number in range(1, num_empty + 1)]
    return "".join(f"{text}\n" for text in lines)
