#!/usr/bin/env bash
# The one test command: sets up .venv in the checkout where it is missing, brings it up to date,
# and runs every check. Arguments go to pytest:  bash scripts/test.sh -k json
# PYTHON picks the interpreter (default python3.11).
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; "$@"; }

if [ ! -x .venv/bin/python ]; then
    step "${PYTHON:-python3.11}" -m venv .venv
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
step .venv/bin/python -m pip install -q -c constraints.txt -e '.[workload,data,test]'
step .venv/bin/ruff check .
step .venv/bin/ruff format --check .
step .venv/bin/mypy
step .venv/bin/lint-imports
step .venv/bin/python -m pytest "$@"
