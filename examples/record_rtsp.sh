#!/usr/bin/env bash
# Records a network camera for a while, with what a detector finds in it, and exports both as a video.
#
#     record_rtsp.sh SOURCE FOLDER SECONDS [EDGE]
#     record_rtsp.sh rtsp://10.0.0.9/stream recording 60
#
# Once before: mez keys init; mez store key. No other edge broker may run on this host. FOLDER then has, beside the store,
# gate.mp4, gate.mp4.jsonl with what was found in each frame, and gate-boxes.mp4, where it is drawn. EDGE is the address of
# the edge broker that this starts, if it is not localhost at the usual port. For a camera that asks for a password:
# mez camera --source-credentials.
set -euo pipefail
source=$1 folder=$2 seconds=$3 edge=${4:-localhost} here=$(dirname "$0")
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

mez edge --store "$folder" & # keeps what crosses the link, and what the detector says of it
python "$here/detector.py" gate/cam1 &
timeout "$seconds" mez camera gate/cam1 --edge "$edge" --source "$source" || true
kill $(jobs -p)
wait

mez store export gate/cam1 "$folder/gate.mp4" --store "$folder"
if [ -e "$folder/gate.mp4.jsonl" ]; then python "$here/boxes_in_video.py" "$folder/gate.mp4"; fi
