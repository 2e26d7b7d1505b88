#!/bin/sh
# Make SimGrid's Python bindings importable by the system's python3; fails where that cannot be done.
python=/usr/bin/python3
"$python" -c "import simgrid" 2>/dev/null && exit 0
command -v apt-get >/dev/null || exit 1
as_root=""
if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || exit 1
    as_root="sudo -n"
fi
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -qq --no-install-recommends \
    python3-simgrid libsimgrid-dev libboost-dev g++ >/dev/null || exit 1
"$python" -c "import simgrid" 2>/dev/null
