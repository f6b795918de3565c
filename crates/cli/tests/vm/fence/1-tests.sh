# The tests of limits that the kernel's own quota keeps (`tests/mount/tests/all/limits/fence.rs`).
mkdir -p /etc; echo root:x:0:0::/: > /etc/passwd
chmod 1777 /tmp
export ULLAGE_BIN=/bin/ullage RUST_BACKTRACE=0 ULLAGE_LOG=${LOG:-info}
tests ${TESTS:-limits::fence} --test-threads 1 --nocapture $MORE > /tmp/tests 2>&1
code=$?
cat /tmp/tests
echo "@@fence $code $(grep -c ' \.\.\. ok\|^ok$' /tmp/tests)"
