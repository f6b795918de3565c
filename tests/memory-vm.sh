#!/bin/bash
# MGLRU and cgroup v2, in a virtual machine: boots Debian's kernel under QEMU with an initramfs made of
# busybox and the given ullage binary, runs a user and a hog there, and checks what came of it.
#   tests/memory-vm.sh [path of ullage]
# Says so and passes where QEMU, the kernel or busybox cannot be had.
set -u
ullage=${1:-target/debug/ullage}
skip() { echo "memory-vm: skipped: $1"; exit 0; }

command -v qemu-system-x86_64 >/dev/null || skip "no qemu-system-x86_64 (Debian: qemu-system-x86)"
command -v cpio >/dev/null || skip "no cpio"
busybox=$(command -v busybox) || skip "no busybox (Debian: busybox-static)"
kernel=$(ls /boot/vmlinuz-*-amd64 2>/dev/null | sort -V | tail -1)
[ -r "$kernel" ] || skip "no Debian kernel in /boot (linux-image-amd64)"
[ -x "$ullage" ] || { echo "memory-vm: $ullage is missing: build it first"; exit 1; }
modules=/lib/modules/${kernel#/boot/vmlinuz-}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,modules,lib64,etc}
echo 'root:x:0:0::/:/bin/sh
ann:x:1000:1000::/tmp:/bin/sh' > "$root/etc/passwd"
echo 'root:x:0:
ann:x:1000:' > "$root/etc/group"
cp "$busybox" "$root/bin/busybox"
cp "$ullage" "$root/bin/ullage"
# The binary's shared libraries, at the paths it looks for them.
for library in $(ldd "$ullage" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp "$library" "$root$library"
done
for module in mm/zsmalloc drivers/block/zram/zram; do
    cp "$modules/kernel/$module.ko" "$root/modules/" 2>/dev/null
done

cat > "$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
chmod 1777 /tmp; mount -t debugfs debug /sys/kernel/debug
mount -t cgroup2 cg /sys/fs/cgroup
echo y > /sys/kernel/mm/lru_gen/enabled
insmod /modules/zsmalloc.ko; insmod /modules/zram.ko && echo 256M > /sys/block/zram0/disksize && mkswap /dev/zram0 && swapon /dev/zram0
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
box=/sys/fs/cgroup/box
mkdir $box; echo 128M > $box/memory.max; echo +memory > $box/cgroup.subtree_control; mkdir $box/user
mkfifo /tmp/orders
sh -c "echo 0 > $box/user/cgroup.procs; exec ullage memory load 24M --cold 24M < /tmp/orders > /tmp/seconds" &
exec 7> /tmp/orders
sleep 2; echo work >&7
ullage memory --runtime-dir /tmp/rt daemon --box $box --speed-up 6 &
daemon=$!
sleep 32
echo rest >&7
ullage memory --runtime-dir /tmp/rt run -- ullage memory load 160M --hog &
hog=$!
sleep 20
ullage memory --runtime-dir /tmp/rt status
echo "HIGH $(cat $box/ullage.contributed/memory.high)"
wc -l < /tmp/seconds > /tmp/mark
echo work >&7
sleep 8
echo "BACK $(tail -n +$(cat /tmp/mark) /tmp/seconds | tr '\n' ' ')"
ullage memory --runtime-dir /tmp/rt status --json > /tmp/status.json && echo "JSON $(grep -o '"sampler":"[^"]*"' /tmp/status.json)"
kill -9 $daemon
# Emulation is slow and the hog takes the only CPU: give the guard some seconds.
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do [ -e /tmp/rt ] || break; sleep 1; done
[ -e /tmp/rt ] && ps | grep '[u]llage' && ls /tmp/rt
[ -e $box/ullage.contributed/memory.high ] && echo "LEFT $(cat $box/ullage.contributed/memory.high) $(cat $box/ullage.contributed/cgroup.freeze)"
kill -9 $hog; exec 7>&-; sleep 1
[ -e /tmp/rt ] && echo "LEFT /tmp/rt"

# An ordinary user with a delegated part of the hierarchy, as systemd gives: all in a group below it.
hers=/sys/fs/cgroup/ann
mkdir $hers $hers/session
chown ann:ann $hers $hers/cgroup.procs $hers/cgroup.subtree_control $hers/cgroup.threads
chown ann:ann $hers/session $hers/session/cgroup.procs
cat > /tmp/ann.sh <<'ANN'
ullage memory --runtime-dir /tmp/ann-rt run -- sleep 6 &
run=$!
sleep 4
ullage memory --runtime-dir /tmp/ann-rt status | sed 's/^/ANN /'
echo "ANN GROUP $(cat /sys/fs/cgroup/ann/ullage.contributed/cgroup.procs | wc -l) $(cat /sys/fs/cgroup/ann/ullage.contributed/memory.high)"
ullage memory --runtime-dir /tmp/ann-rt mark 1 2>&1 | sed 's/^/ANN /'
wait $run; echo "ANN EXIT $?"
ANN
sh -c "echo 0 > $hers/session/cgroup.procs; exec su -s /bin/sh ann /tmp/ann.sh"
for i in 1 2 3 4 5 6 7 8 9 10; do [ -e /tmp/ann-rt ] || break; sleep 1; done
[ -e /tmp/ann-rt ] && echo "LEFT /tmp/ann-rt"
[ -e $hers/ullage.contributed ] && echo "LEFT /tmp: $hers/ullage.contributed"
# The same without anything delegated: told what is missing.
su -s /bin/sh ann -c "ullage memory --runtime-dir /tmp/ann-rt daemon" 2>&1 | sed 's/^/BARE /'
echo "END"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) > "$work/initramfs"

timeout "${VM_SECONDS:-240}" qemu-system-x86_64 -M q35 -m 384 -smp 1 -nographic -no-reboot -monitor none \
    -kernel "$kernel" -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1" \
    < /dev/null > "$work/console" 2>&1
tr -d '\r' < "$work/console" > "${VM_LOG:-$work/log}"
log=${VM_LOG:-$work/log}
grep -aE 'memory|opaque|contributed|working set|sampler|back end|HIGH|BACK|JSON|LEFT|END|cost|ANN|BARE' "$log"

passed=0 failed=0
check() { if grep -qaE "$2" "$log"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "memory-vm: FAILED: $1"; fi; }
check "it ran to its end" '^END'
check "the back end is cgroup v2" '^back end +cgroup v2'
check "the sampler is MGLRU" '"sampler":"MGLRU'
check "the contributed group is bounded by memory.high" '^HIGH [0-9]+'
check "an ordinary user lends in her delegated part" '^ANN back end +cgroup v2 \(/sys/fs/cgroup/ann/ullage.contributed\)'
check "her command is in the group, bounded" '^ANN GROUP 1 [0-9]+'
check "another user's process is refused" '^ANN .*process 1 is not yours'
check "her command ends as it would alone" '^ANN EXIT 0'
check "without delegation it is said what is missing" '^BARE .*no part of the hierarchy is delegated to you'
if grep -qaE '^LEFT ([0-9]|.* 1$|/tmp)' "$log"; then
    failed=$((failed + 1)); echo "memory-vm: FAILED: something was left behind after kill -9"
else
    passed=$((passed + 1))
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
