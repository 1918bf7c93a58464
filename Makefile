# Everything is set up by these targets: Python 3.11 or newer with pip is enough to begin, a C compiler makes it fast.
#   make run            serve on 127.0.0.1:11300
#   make test           checks and tests, in both builds           make check   types, style, sources only
#   make test-compiled PYTEST_ARGS="tests/unit -k heap"            one build, some tests
#   make sim SEED=7     replay one simulated run                   make bench   the benchmarks
PYTHON ?= python3
ARGS ?=
PYTEST_ARGS ?=
VENVS := $(or $(BEANFIELD_VENVS),.)

ifneq ($(MAKECMDGOALS),clean)
ifneq ($(shell $(PYTHON) -c 'import sys; print(sys.version_info >= (3, 11))' 2>&1),True)
$(error Beanfield needs Python 3.11 or newer, and "$(PYTHON)" is not: try make PYTHON=python3.12)
endif
endif

.PHONY: run test check test-interpreted test-compiled test-pythons sim bench wheel system-packages clean

run:
	@$(PYTHON) tools/environments.py run
	@exec $(VENVS)/.venv/bin/beanfield serve -l 127.0.0.1 $(ARGS)

test: system-packages
	@$(PYTHON) tools/test.py sources interpreted compiled

test-interpreted test-compiled: system-packages
	@$(PYTHON) tools/test.py $(@:test-%=%) -- $(PYTEST_ARGS)

check:
	@$(PYTHON) tools/check.py

test-pythons:
	@$(PYTHON) tools/pythons.py

sim:
	@$(PYTHON) tools/environments.py compiled
	@$(VENVS)/.venv-compiled/bin/python -m sim $(if $(SEED),--seed $(SEED)) $(ARGS)

bench:
	@$(PYTHON) tools/environments.py run
	@$(VENVS)/.venv/bin/python -m benchmarks $(ARGS)

wheel:
	@$(PYTHON) -m pip wheel --no-deps --wheel-dir dist .

system-packages:
	@$(PYTHON) tools/system_packages.py

clean:
	rm -rf build dist .venv .venv-interpreted .venv-compiled .venv-check .cache .hypothesis .pytest_cache .mypy_cache .ruff_cache
	rm -rf src/*.egg-info tests/clients/node/node_modules
	find src tests sim tools build_backend benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.so' -delete
