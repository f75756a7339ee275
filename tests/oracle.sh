#!/bin/sh
# oracle.sh PYTHON SCRIPT [ARGS]: runs an oracle test. Without PYTHON the test is skipped (77), or fails where CI=true.
python=$1
if [ ! -x "$python" ]; then
  echo "no $python: \`./lily test\` makes it (build/clients: \`./lily test --full\`), and needs PyPI for that once"
  [ "${CI:-}" = true ] && exit 1
  exit 77
fi
shift
exec env PYTHONDONTWRITEBYTECODE=1 "$python" "$@"
