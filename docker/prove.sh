#!/usr/bin/env bash
# Show on a real Docker Engine that the compose files do what docs/operate.md says of operating
# them. Run it in a checkout with Docker Compose 2.24 or newer, on Linux:
#
#   docker compose build
#   docker/prove.sh             every part; prove.sh 1 3 runs parts 1 and 3
#
# It uses a project of its own (sqlenv-prove), the port PROVE_PORT (18000) and copies of the compose
# files in a temporary folder, and removes them at its end. Each line says what was shown, with
# container ids and exit codes; the first failure ends it with exit code 1.
set -euo pipefail
cd "$(dirname "$0")/.."

parts=${*:-1 2 3 4}
work=$(mktemp -d)
chmod 755 "$work" # for the containers' users
mkdir -m 777 "$work/runs"
# nothing of the caller's own settings
for name in $(sed -n 's/^#\([A-Z_]*\)=.*/\1/p' .env.example train.env.example); do unset "$name"; done
export COMPOSE_PROJECT_NAME=sqlenv-prove COMPOSE_ANSI=never
export DATA=$PWD/data GATEWAY_PORT=${PROVE_PORT:-18000}
agent_py=$PWD/docker/prove_agent.py
RUNS=$work/runs
cp compose*.yaml "$work" && cd "$work"
options="--eval-limit 4 --eval-every 0 --set num_generations=2 --set save_steps=1"
options+=" --set per_device_train_batch_size=2 --set gradient_accumulation_steps=4"
options+=" --set step_budget=4"
settings() { # settings SEED STEPS: those of a training of some seconds
  printf '%s\n' "SEED=$1" "STEPS=$2" PRESET=offline "TRAIN_OPTIONS=$options" >train.env
}
clean() {
  docker compose down -v -t 1 >>"$work/log" 2>&1 || true
  docker rm -f sqlenv-prove-disk sqlenv-prove-agent >/dev/null 2>&1 || true
  docker volume rm -f sqlenv-prove-disk >/dev/null 2>&1 || true
  # files of the containers' user
  docker run --rm -u root -v "$work:/scratch" sqlenv-env-server:0.1.0 rm -rf /scratch/runs || true
  rm -rf "$work"
}
trap clean EXIT

ok() { printf '%4ds  ok    %s\n' "$SECONDS" "$*"; }
fail() { printf '%4ds  FAIL  %s\n' "$SECONDS" "$*" >&2; tail -5 "$work/log" >&2; logs | tail -15 >&2; exit 1; }
expect() { # expect TEXT FOUND WANTED
  [ "$2" = "$3" ] || fail "$1: $2, not $3"
  ok "$1: $2"
}
contains() { # contains TEXT FOUND PART
  case $2 in *"$3"*) ok "$1: ${3}" ;; *) fail "$1: no '$3' in: $2" ;; esac
}
works() { # works TEXT PART COMMAND...: exit code 0 and PART in its output
  local text=$1 part=$2 out status=0; shift 2
  out=$("$@" 2>&1) || status=$?
  [ "$status" = 0 ] || fail "$text: exit code $status: $out"
  contains "$text, exit code 0" "$out" "$part"
}
compose() { docker compose "$@" >>"$work/log" 2>&1; }
logs() { docker compose logs --no-log-prefix trainer 2>/dev/null || true; }
ids() { docker compose ps -aq "$1" | cut -c1-12 | sort | tr '\n' ' '; }
of_trainer() { docker inspect -f "$1" "$(docker compose ps -aq trainer)"; }
until_true() { # until_true TEXT COMMAND...: within 10 minutes
  local text=$1 end=$((SECONDS + 600)); shift
  until "$@" 2>/dev/null; do [ $SECONDS -lt $end ] || fail "$text: not within 10 minutes"; sleep 1; done
}
steps() { cat "$RUNS"/2*/metrics.jsonl 2>/dev/null | grep -c '"success"' || true; }
stepped() { [ "$(steps)" -ge "$1" ]; }
ended() { [ "$(of_trainer '{{.State.Status}}')" = exited ]; }
logged() { logs | grep -qF "$1"; }
runs() { find "$RUNS" -mindepth 2 -maxdepth 2 -name config.json | wc -l; }
train() { # train SEED STEPS: start only the job, as an operator does
  settings "$1" "$2"
  compose up -d trainer
}

part1() {
  echo "== 1. scaling does not touch the training; resume"
  local last=20 each; each=$(seq -f '"step": %g' $last | tr '\n' ' ')
  train 2 $last
  until_true "waits for its first server" logged "waiting up to 59"
  ok "without a server the trainer waits: $(logs | grep -m1 -o 'waiting up to.*server:')"
  compose up -d --wait
  until_true "the first step" stepped 1
  local id started; id=$(ids trainer) started=$(of_trainer '{{.State.StartedAt}}')
  HF_TOKEN=of-another-shell compose up -d --wait --scale env-server=4
  expect "servers after 'up -d --scale env-server=4'" "$(ids env-server | wc -w)" 4
  compose scale env-server=2
  expect "servers after 'scale env-server=2'" "$(ids env-server | wc -w)" 2
  compose up -d
  contains "SEED=9 in the shell" "$(SEED=9 docker compose up -d 2>&1)" "move SEED to train.env"
  expect "trainer's container after these commands" "$(ids trainer)" "$id"
  expect "its start" "$(of_trainer '{{.State.StartedAt}} {{.State.Status}}')" "$started running"

  compose stop trainer
  expect "exit code after 'stop trainer'" "$(of_trainer '{{.State.ExitCode}}')" 130
  compose start trainer
  until_true "resuming" logged "is not finished: resuming it"
  until_true "running again" logged "resumed from checkpoint-"
  ok "after 'start': $(logs | grep -o 'resumed from.*' | tail -1)"
  docker compose exec -T trainer sh -c 'kill -9 -1' >>"$work/log" 2>&1 || true
  until_true "the end" ended
  expect "restarts after kill -9, exit code" "$(of_trainer '{{.RestartCount}} {{.State.ExitCode}}')" "1 0"
  expect "runs" "$(runs)" 1
  expect "steps of the run, each once" "$(grep '"success"' "$RUNS"/2*/metrics.jsonl | grep -o '"step": [0-9]*' | tr '\n' ' ')" "$each"

  local finished; finished=$(of_trainer '{{.Id}} {{.State.FinishedAt}}')
  compose scale env-server=1
  expect "the finished trainer after 'scale env-server=1'" "$(of_trainer '{{.Id}} {{.State.FinishedAt}}')" "$finished"
  compose up -d --scale env-server=3
  expect "its container after 'up -d --scale env-server=3'" "$(ids trainer)" "$id"
  until_true "says that it is finished" logged "is finished: nothing is trained"
  until_true "the end" ended
  expect "exit code of the finished run that 'up' starts again, runs, steps" \
    "$(of_trainer '{{.State.ExitCode}}') $(runs) $(steps)" "0 1 $last"
  compose down
  settings 3 1
  compose up -d
  expect "services after a plain 'up -d'" "$(docker compose ps -a --services | sort | tr '\n' ' ')" "env-server gateway trainer "
  until_true "new settings" logged "a new run:"
  contains "new settings" "$(logs)" "has other settings (seed was 2 and is 3, max_steps was $last and is 1)"
  until_true "the second run" ended
  expect "exit code, runs" "$(of_trainer '{{.State.ExitCode}}') $(runs)" "0 2"
}

part2() {
  echo "== 2. the gateway's port is fixed"
  expect "published by default" "$(env -u GATEWAY_PORT docker compose config | sed -n 's/ *published: "\(.*\)"/\1/p')" 8000
  compose up -d --wait --scale env-server=2 gateway
  local url=http://127.0.0.1:$GATEWAY_PORT agent before
  agent=$(docker run -d --name sqlenv-prove-agent --network host -v "$agent_py:/prove_agent.py:ro" -v "$work:/scratch:ro" \
    -e PYTHONPATH=/app sqlenv-env-server:0.1.0 python /prove_agent.py "$url" /scratch/stop)
  sleep 5
  before=$(ids gateway)
  compose restart gateway
  expect "container after 'restart gateway'" "$(ids gateway)" "$before"
  sleep 3
  docker compose exec -T gateway sh -c 'kill -9 -1' >>"$work/log" 2>&1 || true
  sleep 5
  expect "container, restarts after kill -9" "$(ids gateway)$(docker inspect -f '{{.RestartCount}}' "$(docker compose ps -aq gateway)")" "${before}1"
  compose up -d --wait --force-recreate --no-deps gateway
  [ "$(ids gateway)" != "$before" ] || fail "the gateway was not recreated"
  ok "recreated: $before-> $(ids gateway)"
  sleep 5
  touch "$work/stop"
  docker wait "$agent" >/dev/null
  contains "the agent" "$(docker logs "$agent" 2>&1)" '"lost": 0, "differ": 0'
  ok "in all: $(docker logs "$agent" 2>&1 | tail -1)"
}

part3() {
  echo "== 3. commands in containers"
  compose up -d --wait --scale env-server=2 gateway
  [ "$(runs)" != 0 ] || { train 3 1; until_true "a run" ended; }
  local servers trainer run=(docker compose run --rm -T trainer)
  servers=$(ids env-server) trainer=$(ids trainer)
  works "evaluate" "success" "${run[@]}" python -m trainer evaluate --model runs/latest/model --limit 4 --greedy
  works "report" "report.html" "${run[@]}" python -m trainer report
  works "play" "exit code 0 or 3" docker compose run --rm -T -v "$DATA/databases/bakery/bakery.sqlite:/my.sqlite:ro" \
    trainer sh -c 'python -m trainer play --db /my.sqlite -q "How many products are there?" --step-budget 3 --json -; s=$?
      [ $s = 0 ] || [ $s = 3 ] && echo "exit code 0 or 3"'
  works "doctor" "the offline job can run" "${run[@]}" python -m trainer doctor
  works "packages" "peft, tensorboard, openai" "${run[@]}" python -c 'import peft, tensorboard, openai; print("peft, tensorboard, openai")'
  OPENAI_API_KEY=k1 works "passed on" "OPENAI_API_KEY=k1" docker compose run --rm -T -e OPENAI_API_KEY trainer env
  expect "servers afterwards" "$(ids env-server)" "$servers"
  expect "the job's container afterwards" "$(ids trainer)" "$trainer"
  local commit; commit=$(docker run --rm --entrypoint cat sqlenv-trainer:0.1.0 revision)
  [ -n "$commit" ] || fail "the image has no revision"
  contains "summary.json names the image's commit" "$(cat "$RUNS"/2*/summary.json)" "$commit"
}

part4() {
  echo "== 4. disks"
  compose up -d --wait gateway
  local out status=0
  on() { # on VOLUME ARGUMENTS...: train with another /app/runs
    printf 'services: {trainer: {volumes: [%s]}}\nvolumes: {sqlenv-prove-disk: {external: true}}\n' "$1" >"$work/disk.yaml"
    docker compose -f compose.yaml -f "$work/disk.yaml" run --rm -T trainer python -m trainer train "${@:2}" 2>&1
  }
  docker volume create --driver local -o type=tmpfs -o device=tmpfs -o o=size=100m,mode=777 sqlenv-prove-disk >/dev/null
  out=$(on "\"$RUNS:/app/runs:ro\"") && fail "trained on a read-only folder"
  contains "read-only runs/" "$(tail -1 <<<"$out")" "Read-only file system; mount it for writing"

  # with the ballast there is room for one checkpoint (26 MB) and a part of the second
  docker run -d --name sqlenv-prove-disk -u root -v sqlenv-prove-disk:/disk sqlenv-env-server:0.1.0 \
    sh -c 'head -c 60M /dev/zero >/disk/ballast; sleep 3600' >/dev/null
  # shellcheck disable=SC2206
  local job=(sqlenv-prove-disk:/app/runs --resume-or-new --seed 4 --steps 2 $options)
  out=$(on "${job[@]}") || status=$?
  expect "exit code on a full disk" "$status" 1
  contains "full disk" "$(tail -1 <<<"$out")" "is full: free some space there, then resume from the last checkpoint with:"
  expect "its checkpoints" "$(docker exec sqlenv-prove-disk sh -c 'cd /disk/2*/checkpoints && ls -d checkpoint-*/trainer_state.json checkpoint-2 2>/dev/null' | tr '\n' ' ')" "checkpoint-1/trainer_state.json "
  docker exec -u root sqlenv-prove-disk rm /disk/ballast
  status=0
  out=$(on "${job[@]}") || status=$?
  contains "after freeing space" "$out" "resumed from checkpoint-1"
  expect "exit code" "$status" 0

  train 5 50
  until_true "a step" sh -c 'grep -q success runs/*seed5/metrics.jsonl'
  docker run --rm -u root -v "$RUNS:/runs" sqlenv-env-server:0.1.0 sh -c 'rm -rf /runs/*seed5'
  until_true "the removed folder is noticed" logged "was removed during the run: restore it, or begin a new run"
  ok "removed folder: $(logs | grep -om1 'error: .*was removed.*')"
}

for part in $parts; do "part$part"; done
echo "all shown in $SECONDS s"
