#!/bin/sh
# In fresh Debian systems without a compiler: installs a wheel, checks it, and runs the demo from another folder.
# container.sh WHEEL SUITE...: bookworm has Python 3.11, trixie 3.13, sid 3.14. Needs root and debootstrap.
set -eu
wheel=$1
shift
for suite in "$@"; do
    root=$(mktemp -d)
    trap 'umount "$root/proc" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
    debootstrap --variant=minbase --include=python3-venv,ca-certificates "$suite" "$root" >"$root.log" 2>&1 ||
        { tail -n 3 "$root.log"; exit 1; }
    rm "$root.log"
    mount -t proc proc "$root/proc"
    cp /etc/resolv.conf /etc/hosts "$root/etc/"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    cp "$wheel" "$root/srv/"
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt sh -eu -c '
        for name in cc gcc clang tcc; do if command -v "$name"; then exit 1; fi; done
        python3 -m venv /opt/umm
        /opt/umm/bin/pip install --quiet --disable-pip-version-check /srv/*.whl
        /opt/umm/bin/pip check
        for name in tests docs topologies experiments; do
            if ls -d /opt/umm/lib/python3*/site-packages/"$name"* 2>/dev/null; then exit 1; fi
        done
        mkdir /srv/elsewhere
        cd /srv/elsewhere
        /opt/umm/bin/umm demo | tail -n 1
        python3 --version'
    umount "$root/proc"
    rm -rf --one-file-system "$root"
    trap - EXIT
done
