# Every target first makes or refreshes .venv (cli/bootstrap.py); that takes no time when nothing has changed.
PYTHON ?= python3
VENV := $(or $(AGON_VENV),.venv)
UP_ARGS ?=
TEST_ARGS ?=
FUZZ_ARGS ?=
CLIENTS ?=
BENCH_ARGS ?= --against transformers
FAULTS ?=
FAILOVERS ?=
SOAK ?=
CONTAINERS ?=
CLUSTER ?=

.PHONY: help up test test-long faults format bench bench-performance measure-performance bench-memory kernel-report kernel-record gpu-cache gpu-dry pages fuzz soak-memory attacks clients parity screenshots clean structured-output distributions families failovers soak-models two-hosts containers wheel cluster promtool

help:
	@echo "make up           start the arena on this machine (UP_ARGS='--model NAME=PATH_OR_HUB_ID ...')"
	@echo "make test         every check and test (TEST_ARGS goes to pytest)"
	@echo "make test-long    the tests that take too long for that: other variants of what it has, minutes"
	@echo "make faults       kill, cut, stop and fill things in a running arena, an hour or more (FAULTS='--only NAME --rounds N --seed S')"
	@echo "make bench        our engine against transformers on the same work (BENCH_ARGS: those of agon bench)"
	@echo "make bench-performance    regenerate docs/performance.md from the results in benchmarks/results"
	@echo "make measure-performance  measure them again first, an hour on a quiet machine (benchmarks/README.md)"
	@echo "make bench-memory regenerate docs/memory.md and its figures: the memory simulator"
	@echo "make kernel-report   compile all that served models launch, no GPU needed, and write the tables of docs/kernels.md"
	@echo "make kernel-record   after a change of a kernel: check what make test would compile in every run, and record it"
	@echo "make gpu-cache    compile what a GPU's first minutes launch into .gpu, to take along (1.3 GB of Triton to download)"
	@echo "make gpu-dry      the first minutes on a GPU, on this CPU: every stage in its smallest form, and planted failures"
	@echo "make pages        regenerate docs/api.md, access.md, settings.md, fifty-names.md and the table of models.md from the code"
	@echo "make fuzz         50,000 malformed requests to controller, worker and web UI (FUZZ_ARGS='--seed 2 --target worker --case 7')"
	@echo "make soak-memory the page cache against its naive twin, 5,000 x 100 random operations; 2,000 random hosts of several models"
	@echo "make soak-models  models are added, sleep, wake and are removed 200 times in an arena under load (SOAK='--cycles N --visitors N')"
	@echo "make format       format the code"
	@echo "make distributions 20,000 draws of each pair of sampling parameters against the exact distribution"
	@echo "make attacks      the attackers' scripts at full length: 300 battles, 200 prompts of others; prints what they found"
	@echo "make clients      client libraries from PyPI and npm, coding agents too: one line for each check (CLIENTS='--through arena litellm')"
	@echo "make failovers    50 fail-overs of a store with Sentinel under votes (FAILOVERS='--rounds N --vote-replicas N')"
	@echo "make two-hosts    as root: an arena and workers in two and four network namespaces, with TLS; docs/machines.md as it stands"
	@echo "make containers   build the images and run docker-compose.yml under podman, as root (CONTAINERS='--local-bases --gpu')"
	@echo "make wheel        install the wheel into a new environment, run agon up in an empty folder, and one battle"
	@echo "make cluster      three machines under Ray, killed and cut off in turns; needs 70 MB of Ray (CLUSTER='--only NAME --rounds N')"
	@echo "make promtool     Prometheus' own tool on configuration, alerts and metrics (downloads 19 MB where it is not there)"
	@echo "make parity       every architecture against transformers under all settings, and docs/parity.md"
	@echo "make families     an arena of tiny Qwen3.5, Gemma 4, gpt-oss, Granite 4 and GGUF models: battles in a browser, with pictures"
	@echo "make screenshots  take the pictures of the documentation again"
	@echo "make structured-output  answers to 500 JSON schemas, and 1,000 of the demo models, judged by jsonschema (SUITE=FOLDER: a checkout of JSON-Schema-Test-Suite)"
	@echo "make clean        remove the environment and everything that was generated"

structured-output:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.engine.constraints $(if $(SUITE),--suite $(SUITE))

up:
	@$(PYTHON) -I cli/bootstrap.py --extra all
	@exec $(VENV)/bin/agon up $(UP_ARGS)

test:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --chromium --compiler --proxies
	@exec $(VENV)/bin/python .ci/checks.py $(TEST_ARGS)

test-long:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python .ci/checks.py -m long $(TEST_ARGS)

faults:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.faults --json faults.jsonl $(FAULTS)

format:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@$(VENV)/bin/ruff check --fix --quiet . ; $(VENV)/bin/ruff format .

bench:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/agon bench $(BENCH_ARGS)

bench-performance:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m benchmarks.performance

measure-performance:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@$(VENV)/bin/python -m benchmarks.peers setup vllm openvino transformers
	@exec $(VENV)/bin/python -m benchmarks.performance --measure

bench-memory:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m benchmarks.memory

kernel-report:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m benchmarks.kernels report

kernel-record:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@$(VENV)/bin/python -m benchmarks.kernels record --architecture 90
	@exec $(VENV)/bin/python -m benchmarks.kernels record --architecture 89 --kernel attend_pages

gpu-dry:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m pytest -q -s --timeout=0 tests/benchmarks/gpu/test_first_minutes.py

gpu-cache:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@exec $(VENV)/bin/python -m benchmarks.gpu.compiled_cache make

pages:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@for page in api_page api_fields_page access_page settings_page models_table; do $(VENV)/bin/python docs/$$page.py || exit 1; done
	@$(VENV)/bin/python -m docs.fifty_names_table

fuzz:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.fuzz $(FUZZ_ARGS)

soak-memory:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@AGON_SOAK=1 exec $(VENV)/bin/python -m pytest --timeout=0 tests/engine/memory/test_state_machine.py tests/engine/hosting

soak-models:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@exec $(VENV)/bin/python -m tests.model_cycles $(SOAK)

clients:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.clients $(CLIENTS)

real:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@exec $(VENV)/bin/python -m tests.real $(REAL)

parity:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@exec $(VENV)/bin/python -m tests.parity --write

distributions:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@AGON_TEST_DRAWS=20000 exec $(VENV)/bin/python -m pytest -q --timeout=0 tests/engine/sampling/test_distributions.py

families:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --chromium --compiler
	@exec $(VENV)/bin/python -m tests.families families

failovers:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.failovers $(FAILOVERS)

two-hosts:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --compiler
	@$(VENV)/bin/python -m tests.two_hosts
	@exec $(VENV)/bin/python -m tests.two_hosts.document

containers:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --chromium
	@exec $(VENV)/bin/python -m tests.containers $(CONTAINERS)

promtool:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.promtool

wheel:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@exec $(VENV)/bin/python -m tests.wheel

cluster:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@$(VENV)/bin/python -m tests.cluster.environment $(VENV)-cluster
	@PYTHONPATH=$(CURDIR) exec $(VENV)-cluster/bin/python -m tests.cluster $(CLUSTER)

attacks:
	@$(PYTHON) -I cli/bootstrap.py --extra dev
	@AGON_ATTACKS=full exec $(VENV)/bin/python -m pytest -q -s --timeout=0 tests/attacks

screenshots:
	@$(PYTHON) -I cli/bootstrap.py --extra dev --chromium
	@exec $(VENV)/bin/python docs/screenshots.py

clean:
	rm -rf .venv .venv-clients .venv-cluster .gpu *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
