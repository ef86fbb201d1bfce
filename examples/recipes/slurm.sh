#!/usr/bin/env bash
# Loadmaster in a Slurm job: services on the first nodes of the allocation, the trainer on the others.
#
#     sbatch --nodes=5 examples/recipes/slurm.sh run.yaml \
#         'python examples/train_gpt.py $PLANNER_URL --checkpoint gpt.pt $(test -f gpt.pt && echo --resume)'
#
# The trainer's command line is run once a rank, with PLANNER_URL, RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and
# MASTER_PORT. The job's folder must be on a file system that all nodes share, and outlive the job: submitted again with
# the same one, the planner goes on with the run.
#SBATCH --job-name=loadmaster
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --requeue
set -euo pipefail

service_nodes=${SERVICE_NODES:-1}                   # nodes of planner, loaders and constructors
ranks_per_node=${RANKS_PER_NODE:-1}                 # GPUs of a training node
loaders_per_node=${LOADERS_PER_NODE:-2}
folder=${LOADMASTER_FOLDER:-$PWD/loadmaster}        # certificates, tokens, the planner's state, logs
port=${LOADMASTER_PORT:-8700}
spec=$1
trainer=$2

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
services=("${nodes[@]:0:service_nodes}")
trainers=("${nodes[@]:service_nodes}")
if ((${#trainers[@]} == 0)); then
    echo "slurm.sh: $service_nodes service nodes leave none of ${#nodes[@]} to train on" >&2
    exit 2
fi
head=${services[0]}
url=https://$head:$port
join() { (IFS=, && echo "$*"); }

# Processes on several machines speak TLS and show tokens; certificates and token are readable by this user alone.
umask 077
mkdir -p "$folder/logs"
loadmaster certificates "$folder/tls" --name "services,$(join "${services[@]}")" >/dev/null
export LOADMASTER_TLS_CA=$folder/tls/ca.pem LOADMASTER_TOKEN_FILE=$folder/token LOADMASTER_TLS_NAME=services
serve=(--host 0.0.0.0 --tls-cert "$folder/tls/services.pem" --tls-key "$folder/tls/services.key")

# A step of the job in the background: its name, the nodes it runs on, tasks of each, the command.
running=()
start() {
    local name=$1 on=$2 each=$3 count
    shift 3
    count=$(scontrol show hostnames "$on" | wc -l)
    srun --overlap --job-name="$name" --nodelist="$on" --nodes="$count" --ntasks-per-node="$each" \
        --ntasks=$((each * count)) --output="$folder/logs/$name.%t.log" "$@" &
    running+=("$name:$!")
}
# srun kills at once when it is told to end; scancel lets processes hand over what they have. The planner goes last.
finish() {
    trap - EXIT
    local id name each
    for each in "${running[@]:1}" "${running[@]:0:1}"; do
        squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' | while read -r id name; do
            [[ $name != "${each%:*}" ]] || scancel --signal=TERM "$id" 2>/dev/null || true # 22.05 signals, and fails
        done
        timeout 60 tail --pid="${each##*:}" -f /dev/null || kill "${each##*:}" || true
    done
}
trap finish EXIT

rm -f "$folder/ready"
start planner "$head" 1 loadmaster planner --port "$port" --access token --state-dir "$folder/planner" \
    --ready-file "$folder/ready" "${serve[@]}"
for ((waited = 0; ; waited++)); do
    [[ -s $folder/ready ]] && break
    if ((waited == 120)) || ! kill -0 "${running[0]##*:}" 2>/dev/null; then
        echo "slurm.sh: the planner did not start, see $folder/logs/planner.0.log" >&2
        exit 1
    fi
    sleep 1
done
loadmaster token create --state-dir "$folder/planner" --name slurm --role process --role publisher \
    --keep "$folder/token"
start loader "$(join "${services[@]}")" "$loaders_per_node" loadmaster loader --planner "$url" "${serve[@]}"
start constructor "$(join "${services[@]}")" 1 loadmaster constructor --planner "$url" "${serve[@]}"
loadmaster create "$spec" --planner "$url"          # changes nothing where the run is there already

export PLANNER_URL=$url MASTER_ADDR=${trainers[0]} MASTER_PORT=${MASTER_PORT:-29500}
srun --overlap --nodelist="$(join "${trainers[@]}")" --nodes="${#trainers[@]}" --ntasks-per-node="$ranks_per_node" \
    --ntasks=$((ranks_per_node * ${#trainers[@]})) \
    bash -c "export RANK=\$SLURM_PROCID LOCAL_RANK=\$SLURM_LOCALID WORLD_SIZE=\$SLURM_NTASKS; exec $trainer"
