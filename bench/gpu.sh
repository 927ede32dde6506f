#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks and measures Penstock on a machine with a GPU and nothing else: see bench/gpu.py (`gpu.sh --help`). Needs python3 alone.
set -eu
command -v python3 >/dev/null || { echo "gpu.sh: python3 is not there" >&2; exit 2; }
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu.py" "$@"
