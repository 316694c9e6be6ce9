#!/usr/bin/env bash
# Play an episode with curl: bash examples/curl.sh [URL]
#
# Needs a running server, and curl here. A key goes into every call: -H "Authorization: Bearer KEY".
set -euo pipefail
url=${1:-http://127.0.0.1:8000}

post() {
    curl -sS --fail-with-body "$url/$1" -d "$2" && echo
}

curl -sS --fail-with-body "$url/questions?difficulty=easy&limit=2" && echo
reset=$(post reset '{"difficulty": "easy", "seed": 7}')
echo "$reset"
episode=$(grep -o '"episode_id":"[^"]*"' <<<"$reset" | tail -1 | cut -d'"' -f4)
table=$(grep -o 'Tables: [^,"]*' <<<"$reset" | head -1 | cut -c9-)

# "step" is the number of steps answered so far: a repeated call is charged once
post step "{\"episode_id\": \"$episode\", \"action\": \"DESCRIBE: $table\", \"step\": 0}"
post step "{\"episode_id\": \"$episode\", \"action\": \"QUERY: SELECT count(*) FROM $table\", \"step\": 1}"
post step "{\"episode_id\": \"$episode\", \"action\": \"ANSWER: 42\", \"step\": 2}"
