# Everything from a fresh clone: each target makes .venv, and installs into it what it needs and no
# more. Needs Python 3.11 or later; another one than python3: make PYTHON=python3.12 demo

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
FOR_TESTS := $(VENV)/.installed-tests
JUDGES := $(VENV)/.installed-judges
PIP_INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check \
  --constraint .constraints.txt --editable
# on Linux without an NVIDIA GPU, pip takes PyTorch's build for the CPU from here, gigabytes smaller;
# where pip has an index of its own, that one counts
CPU_TORCH := https://download.pytorch.org/whl/cpu
PYTHON_IS_NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

.DEFAULT_GOAL := help
.PHONY: help install judges install-scale demo report test check format bench wikitext2 ptb pipeline treebank ewt clean
.PRECIOUS: corpora/%/text/dataset.json corpora/%/words/corpus.json runs/%/model.json

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

install: $(INSTALLED)  ## make .venv and install seqtool; demo and test do it too

$(INSTALLED): pyproject.toml .constraints.txt
	@$(PYTHON) $(PYTHON_IS_NEW_ENOUGH) 2>/dev/null || { \
	  found=`$(PYTHON) --version 2>/dev/null || echo missing`; \
	  echo "error: seqtool needs Python 3.11 or later, but $(PYTHON) is $$found" >&2; \
	  echo "hint: name a newer one, for example: make PYTHON=python3.12 demo" >&2; exit 1; }
	@if [ -x $(BIN)/python ] && ! $(BIN)/python $(PYTHON_IS_NEW_ENOUGH); then rm -rf $(VENV); fi
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV) || { \
	  echo "hint: Debian and Ubuntu have venv in a package: apt install python3-venv" >&2; exit 1; }
	@echo "Installing seqtool into $(VENV); the first time this takes some minutes (PyTorch is large) ..."
	@[ ! -e /proc/version ] || command -v nvidia-smi >/dev/null || \
	  $(BIN)/python -m pip config list | grep -q index || \
	  export PIP_EXTRA_INDEX_URL=$(CPU_TORCH); \
	$(PIP_INSTALL) '.[plot]' || { \
	  echo "hint: pip needs the network, or a local mirror in its configuration" >&2; exit 1; }
	@touch $@

$(FOR_TESTS): $(INSTALLED)
	@echo "Installing what the tests and checks need ..."
	@$(PIP_INSTALL) '.[dev]'
	@touch $@

$(JUDGES): $(INSTALLED)
	@echo "Installing what tests and benchmarks compare with ..."
	@$(PIP_INSTALL) '.[judges]' || { \
	  echo "hint: kenlm and ufal.udpipe need a C++ compiler where no wheel fits; tests run without them" >&2; \
	  exit 1; }
	@touch $@

judges: $(JUDGES)  ## install what tests compare with: KenLM, UDPipe ... (0.7 GB)
	@:

install-scale: $(INSTALLED)  ## install DuckDB and Spark too (0.8 GB; Spark needs Java 17)
	@$(PIP_INSTALL) '.[scale]'

demo: $(INSTALLED)  ## the whole main job on the shipped sample, in two minutes
	@$(BIN)/seqtool demo

report: $(INSTALLED)  ## one page about the demo's models: runs/demo/report.html
	@test -f runs/demo/parser/model.json && test -f runs/demo/rhn/model.json || $(BIN)/seqtool demo
	@$(BIN)/seqtool analyse report runs/demo -o runs/demo/report.html

test: $(FOR_TESTS)  ## run the tests; without judges, some are skipped
	@$(BIN)/python -m pytest -q -n auto --dist worksteal

check: $(FOR_TESTS)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(FOR_TESTS)  ## put the source in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Goes on where it was stopped. DATA has the folders ptb, wikitext-2, ewt and hu_szeged. A quick try:
# ROWS=ngram
bench: $(INSTALLED)  ## measure the figures of the page Results (DATA= OUT= ROWS=)
	@$(MAKE) --no-print-directory judges || echo "note: rows whose peer is missing are left out"
	@$(BIN)/python tests/benchmarks/bench.py --data "$(or $(DATA),../shared/data)" \
	  --out "$(or $(OUT),runs/bench)" --rows "$(ROWS)"

wikitext2: $(INSTALLED)  ## train, measure, generate: WikiText-2 (DATA= RECIPE=)
	@$(MAKE) --no-print-directory pipeline NAME=wikitext-2 \
	  RECIPE=$(or $(RECIPE),wikitext2-lstm-cpu) PROMPT="The film was"

ptb: $(INSTALLED)  ## the same on the Penn Treebank
	@$(MAKE) --no-print-directory pipeline NAME=ptb \
	  RECIPE=$(or $(RECIPE),ptb-lstm-cpu) PROMPT="the company said"

# Each step leaves a file that marks it as done, so an interrupted pipeline goes on where it stopped.
TEXT := corpora/$(NAME)/text
WORDS := corpora/$(NAME)/words
MODEL := runs/$(RECIPE)

$(TEXT)/dataset.json:
	$(BIN)/seqtool fetch $(NAME) -o $(TEXT) $(if $(DATA),--from "$(DATA)")

$(WORDS)/corpus.json: $(TEXT)/dataset.json
	$(BIN)/seqtool prepare $(TEXT)/train.txt $(foreach split,valid test,$(shell \
	  test -f $(TEXT)/$(split).txt && echo --$(split) $(TEXT)/$(split).txt)) \
	  --unit word -o $(WORDS) --force

$(MODEL)/model.json: | $(WORDS)/corpus.json
	$(BIN)/seqtool train-lm $(WORDS) --config $(RECIPE) -o $(MODEL) $(shell \
	  test -d $(MODEL)/last && echo --resume)

define newline


endef

pipeline: $(MODEL)/model.json
	$(foreach text,$(shell ls $(TEXT)/valid.txt $(TEXT)/test.txt 2>/dev/null),\
	  $(BIN)/seqtool eval-ppl $(text) -m $(MODEL)$(newline))
	$(BIN)/seqtool generate -m $(MODEL) --prompt "$(PROMPT)" --num 3 --max-tokens 40 --seed 1

treebank: $(INSTALLED)  ## train, score and draw three parsers (TRAIN= DEV=)
	@test -n "$(TRAIN)" && test -n "$(DEV)" || { \
	  echo "error: no treebank is given" >&2; \
	  echo "hint: make treebank TRAIN=train.conllu DEV=dev.conllu [TEST=test.conllu] [NAME=mine]" >&2; \
	  exit 1; }
	@$(MAKE) --no-print-directory scored NAME=$(or $(NAME),treebank)

ewt: $(INSTALLED)  ## the same with UD English-EWT from a folder (DATA=)
	@test -n "$(DATA)" || { echo "error: no folder is given" >&2; \
	  echo "hint: make ewt DATA=folder, with en_ewt-ud-train.conllu and -dev.conllu in it" >&2; exit 1; }
	@$(MAKE) --no-print-directory treebank NAME=ewt TRAIN=$(DATA)/en_ewt-ud-train.conllu \
	  DEV=$(DATA)/en_ewt-ud-dev.conllu TEST=$(wildcard $(DATA)/en_ewt-ud-test.conllu)

# Needs CoNLL-U files with trees (also .gz) whose names hold no spaces, and `# text = ` above each
# sentence, as all of UD have; awk and gzip. Other settings than the presets', as for a quick try:
#   SET="--epochs 1"  RAW_SET="--set tagger.training.epochs=1 --set parser.training.epochs=1"
# The scores are those of TEST, or of DEV where there is none. `raw` starts from the plain text.
TREES := corpora/$(NAME)
GOLD := $(or $(TEST),$(DEV))
KINDS := fast accurate raw
runs/$(NAME)-fast/model.json: SETTINGS = --preset fast $(SET)
runs/$(NAME)-accurate/model.json: SETTINGS = --preset accurate $(SET)
runs/$(NAME)-raw/model.json: SETTINGS = --raw $(RAW_SET)

.PHONY: scored
scored: $(TREES)/scores.txt $(TREES)/fast.html $(TREES)/accurate.html
	@cat $(TREES)/checked.txt $(TREES)/scores.txt
	@echo "Ten sentences with their errors: $(filter %.html,$^)"

$(TREES)/checked.txt: $(TRAIN) $(DEV) $(TEST)
	@mkdir -p $(@D)
	$(BIN)/seqtool prepare $^ > $@.part
	@mv $@.part $@

$(KINDS:%=runs/$(NAME)-%/model.json): | $(TREES)/checked.txt
	$(BIN)/seqtool train-parser $(TRAIN) --dev $(DEV) $(SETTINGS) -o $(@D) \
	  $(if $(wildcard $(@D)/run.json),--resume)

$(TREES)/raw.txt: $(GOLD) | $(TREES)/checked.txt
	gzip -cdf $< | awk '/^# new(doc|par)/ { printf "\n\n" } \
	  sub(/^# text = /, "") { printf "%s ", $$0 } END { print "" }' > $@.part
	@mv $@.part $@

$(TREES)/raw.conllu: runs/$(NAME)-raw/model.json $(TREES)/raw.txt
	$(BIN)/seqtool parse $(TREES)/raw.txt -m $(<D) -o $@

$(TREES)/%.conllu: runs/$(NAME)-%/model.json
	$(BIN)/seqtool parse $(GOLD) -m $(<D) -o $@

$(TREES)/scores.txt: $(KINDS:%=$(TREES)/%.conllu)
	$(BIN)/seqtool eval-parser $(GOLD) $^ > $@.part
	@mv $@.part $@

# of ten sentences that are not as in GOLD, or of the first ten where all are
$(TREES)/%.html: $(TREES)/%.conllu
	gzip -cdf $(GOLD) | tr -d '\r' | awk 'BEGIN { RS = ""; ORS = "\n\n" } \
	  NR == FNR { parsed[FNR] = $$0; next } \
	  $$0 != parsed[FNR] && wrong++ < 10 { print; next } \
	  right++ < 10 { first = first $$0 ORS } \
	  END { if (!wrong) printf "%s", first }' $< - > $(TREES)/$*-errors.conllu
	$(BIN)/seqtool parse $(TREES)/$*-errors.conllu -m runs/$(NAME)-$* \
	  --gold $(TREES)/$*-errors.conllu --format html -o $@

clean:  ## remove caches and built files, not .venv, corpora, runs
	@rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
