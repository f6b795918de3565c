#!/usr/bin/env bash
# Every decoder against the fuzzer: `fuzz/run.sh [SECONDS] [TARGET…]`, 60 seconds each, all targets. Begins with the corpus
# that is kept, and keeps what it found beside it: KEEP=1 packs that, as far as it reaches new code, for the next time.
# Needs a nightly toolchain and `cargo install cargo-fuzz`. Ends with 1 when a target failed; its input lies in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")"
seconds=${1:-60}
[ $# -gt 0 ] && shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for source in fuzz_targets/*.rs; do targets+=("$(basename "$source" .rs)"); done
fi
failed=0
for target in "${targets[@]}"; do
    corpus=corpus/$target
    mkdir -p "$corpus"
    if [ -f "$corpus.tar.gz" ]; then tar -xzf "$corpus.tar.gz" -C corpus; fi
    if ! cargo +nightly fuzz run "$target" "$corpus" -- -max_total_time="$seconds" -rss_limit_mb=4096; then
        echo "$target FAILED" >&2
        failed=1
    elif [ -n "${KEEP:-}" ]; then
        cargo +nightly fuzz cmin "$target" "$corpus"
        tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - -C corpus "$target" | gzip -9n > "$corpus.tar.gz"
    fi
done
exit $failed
