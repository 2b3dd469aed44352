#!/usr/bin/env bash
# The one test command: sets up .venv in the checkout where it is missing, brings it up to date,
# and runs every check. Arguments go to pytest:  bash scripts/test.sh -k json
# PYTHON picks the interpreter (default python3.11). Every check runs, also after one has failed;
# pytest comes last. The exit status is 0 only if all passed.
set -euo pipefail
cd "$(dirname "$0")/.."

failed=()
step() { printf '\n== %s\n' "$*"; "$@"; }
check() { step "$@" || failed+=("$*"); }

if [ ! -x .venv/bin/python ]; then
    step "${PYTHON:-python3.11}" -m venv .venv
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
step .venv/bin/python -m pip install -q -c constraints.txt -e '.[workload,data,test]'
check .venv/bin/ruff check .
check .venv/bin/ruff format --check .
check .venv/bin/mypy
check .venv/bin/lint-imports
for name in ${failed[@]+"${failed[@]}"}; do
    printf '\n!! failed: %s\n' "$name"
done
check .venv/bin/python -m pytest "$@"
[ ${#failed[@]} -eq 0 ]
