#!/usr/bin/env bash
# Puts Mez into a new environment, with all that the demo and the profiler need (OpenCV, rich, matplotlib),
# and tries it there. The wheel is made by `make wheel`.
#
#     own_environment.sh out/wheel/mez-0.1.0-….whl ~/vision street.mp4
set -euo pipefail
wheel=$1 environment=$2 video=$3

python3 -m venv "$environment"
. "$environment/bin/activate"
pip install "${wheel}[apps]"
mez --version
python "$(dirname "$0")/own_model.py" "$video"
