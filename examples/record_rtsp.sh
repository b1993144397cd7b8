#!/usr/bin/env bash
# Records a network camera for a while, with what a detector finds in it, and exports both.
#
#     record_rtsp.sh rtsp://10.0.0.9/stream recording 60
#
# Once before: mez keys init; mez store key. The folder `recording` then has gate.mp4, and beside it gate.mp4.jsonl
# with the boxes of each frame. For a camera that asks for a password: --source-credentials (see the cookbook).
set -euo pipefail
source=$1 folder=$2 seconds=$3 edge=${4:-localhost}
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

mez edge &
python "$(dirname "$0")/detector.py" gate/cam1 &
# It ends after so many seconds, once it has written what it has.
timeout "$seconds" mez camera gate/cam1 --edge "$edge" --source "$source" --store "$folder" || true

mez store export gate/cam1 "$folder/gate.mp4" --store "$folder"
