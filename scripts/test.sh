#!/usr/bin/env bash
# All tests in two processes of about the same length, for a test of a stream waits half the time. One has most of what
# needs Spark, in one session; the other the pure tests, the kills of driver processes of its own, and the longest of
# the rest, in a second session. Arguments go to pytest, which then runs alone: `make test ARGS="-k name"`.
set -uo pipefail
cd "$(dirname "$0")/.."
python=.venv/bin/python
if [ $# -gt 0 ]; then
  exec $python -m pytest "$@"
fi

pure=(
  tests/control tests/engine_sim tests/windows tests/apps/queries tests/apps/simulate
  src/penstock/windows src/penstock/patterns src/penstock/control src/penstock/engine/sim
  src/penstock/apps/queries src/penstock/apps/simulate
)
kills=tests/engine/test_kill.py::test_three_kills_of_the_driver_tree_lose_and_double_nothing
longest=(tests/engine/test_window_kinds.py tests/engine/test_faults.py tests/engine/test_faults_under_control.py)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# The drivers that are killed run for seconds: the quick compiler alone is enough, as in tests/conftest.py.
JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 $python -m pytest -p no:cacheprovider "$kills" "${pure[@]}" "${longest[@]}" >"$log" 2>&1 &
beside=$!
ignored=("--deselect=$kills")
for path in "${pure[@]}" "${longest[@]}"; do ignored+=("--ignore=$path"); done
failed=0
$python -m pytest "${ignored[@]}" || failed=1
wait $beside || failed=1
echo "test: beside it, the pure layers, the kills, the faults and every kind of window"
cat "$log"
exit $failed
