#!/usr/bin/env bash
# Judges the Python client: formats, types for each version of Python, and all its tests at real nodes.
#   scripts/judge-python.sh [PYTEST ARGUMENTS..]
# Needs Python 3.11 or newer and PyPI, or an environment with the tools in LOCKKEEPER_PYTHON_TOOLS. LOCKKEEPER_BIN
# names another binary.
set -euo pipefail
cd "$(dirname "$0")/.."
export LOCKKEEPER_BIN=${LOCKKEEPER_BIN:-$PWD/target/release/lockkeeper}
tools=${LOCKKEEPER_PYTHON_TOOLS:-$PWD/target/python-tools}
cd scripts/python

wanted=(pytest==9.2.0 pytest-timeout==2.4.0 hypothesis==6.170.17 mypy==2.4.1 pyright==1.1.414 ruff==0.17.6)
if [ ! -x "$tools/bin/pytest" ]; then
  python3 -m venv "$tools"
  "$tools/bin/pip" install -q --disable-pip-version-check "${wanted[@]}"
fi

"$tools/bin/ruff" format --check --no-cache src tests
"$tools/bin/ruff" check --no-cache src tests
for version in 3.11 3.12 3.13 3.14; do
  "$tools/bin/mypy" --cache-dir /dev/null --python-version "$version"
  "$tools/bin/pyright" --pythonpath "$tools/bin/python" --pythonversion "$version"
done
"$tools/bin/pytest" -q -p no:cacheprovider "$@"
