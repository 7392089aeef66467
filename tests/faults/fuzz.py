"""Coverage-guided fuzzing of one reader: python -m faults.fuzz TARGET NUMBER [SEED].

Needs atheris. The process ends with exit code 0 when no fault was found; otherwise it leaves the
input in a file `crash-...` of the current directory.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import atheris  # noqa: E402

# what Numba compiles must stay as it is written
COMPILED = ["core.string_table", "text.words", "lm.ngram.arpa_lines", "treebank.scanner"]
COMPILED += ["treebank.projectivity", "lm.ngram.query", "lm.ngram.counts", "lm.ngram.smoothing"]

with atheris.instrument_imports(
    include=["seqtool", "json", "yaml"], exclude=[f"seqtool.{name}" for name in COMPILED]
):
    from faults.targets import TARGETS

    import seqtool.core.checkpoint
    import seqtool.core.config
    import seqtool.core.reading
    import seqtool.core.vocabulary
    import seqtool.lm.neural.config
    import seqtool.lm.ngram.arpa
    import seqtool.text.prepared
    import seqtool.training.run
    import seqtool.treebank.conllu  # noqa: F401


def main() -> None:
    """Fuzz."""
    name, number = sys.argv[1], sys.argv[2]
    seed = sys.argv[3] if len(sys.argv) > 3 else "1"
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for index, content in enumerate(target.seeds()):
            (Path(folder) / str(index)).write_bytes(content)
        options = [
            f"-runs={number}",
            f"-seed={seed}",
            "-max_len=10000",
            "-timeout=10",
            "-rss_limit_mb=4000",
        ]
        atheris.Setup([sys.argv[0], *options, folder], target.read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
