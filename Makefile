# Two commands are all a newcomer needs: `make up` and `make test`.

DIR ?= $(HOME)/ullage
# Where cargo puts what it builds, for those who have told it so.
TARGET := $(if $(filter /%,$(CARGO_TARGET_DIR)),$(CARGO_TARGET_DIR),$(CURDIR)/$(or $(CARGO_TARGET_DIR),target))
ULLAGE := $(TARGET)/release/ullage
# Where `make install` puts things; where mount(8) looks for its helpers, which is nowhere else.
PREFIX ?= /usr/local
SHARE := $(DESTDIR)$(PREFIX)/share
HELPER := $(DESTDIR)/usr/sbin/mount.fuse.ullage
APT_TESTS := fuse3 attr acl e2fsprogs xfsprogs btrfs-progs mount util-linux git sqlite3 make gcc libc6-dev tar postmark bindfs mergerfs procps psmisc etcd-server protobuf-compiler libprotobuf-dev qemu-system-x86 busybox-static cpio binutils xz-utils strace

.PHONY: up down build built install uninstall test stalls long fuzz tools idle-kernel new-kernel lint bench

# Banks that share their accounts in etcd need its client, whose build takes `protoc` (packages protobuf-compiler and
# libprotobuf-dev). Without it everything else is built.
PROTOC := command -v protoc >/dev/null && ls /usr/include/google/protobuf/descriptor.proto >/dev/null 2>&1
build:
	@{ $(PROTOC); } || echo "protoc is missing: building without --engine etcd:// for banks"
	cargo build --release $$({ $(PROTOC); } || echo --no-default-features)

# Who has no cargo, as with sudo, takes what was built before.
HAVE := $(if $(shell command -v cargo 2>/dev/null),build,built)
built:
	@if [ -x "$(ULLAGE)" ]; then echo "no cargo in PATH: taking $(ULLAGE) as it is"; \
	else echo "no cargo in PATH, and nothing built: run 'make build' first, as who has it" >&2; exit 1; fi

# Makes (or starts) a space: data in DIR/pool, state in DIR/state, mounted at DIR/space.
up: $(HAVE)
	@mkdir -p "$(DIR)/pool"
	@if [ -f "$(DIR)/state/space.toml" ]; then \
		"$(ULLAGE)" up "$(DIR)/space" --state "$(DIR)/state"; \
	else \
		"$(ULLAGE)" up "$(DIR)/space" --state "$(DIR)/state" --pool main="$(DIR)/pool"; \
	fi
	@echo "Mounted at $(DIR)/space. Try:"
	@echo "  cp -r /usr/share/doc $(DIR)/space/      # use it like any directory"
	@echo "  $(ULLAGE) status $(DIR)/space           # how it is"
	@echo "  $(ULLAGE) du $(DIR)/space/doc           # at once, however large"
	@echo "  $(ULLAGE) stat $(DIR)/space/doc         # what the space knows of a file"
	@echo "  make down DIR=$(DIR)                    # unmount; 'make up' brings it back"

down:
	"$(ULLAGE)" down "$(DIR)/space" --state "$(DIR)/state"

# For all users, whatever the umask of who installs is. An ordinary user has no place for the helper, and needs none: lines in /etc/fstab are
# root's.
install: $(HAVE)
	umask 022 && install -D -m 755 "$(ULLAGE)" "$(DESTDIR)$(PREFIX)/bin/ullage"
	@if [ -n "$(DESTDIR)" ] || [ "$$(id -u)" = 0 ]; then \
		umask 022 && mkdir -p "$(DESTDIR)/usr/sbin" && ln -sf "$(PREFIX)/bin/ullage" "$(HELPER)"; \
	else echo "not root: without $(HELPER), which lines in /etc/fstab need"; fi
	umask 022 && "$(ULLAGE)" man "$(SHARE)/man/man1"
	umask 022 && mkdir -p "$(SHARE)/bash-completion/completions" "$(SHARE)/zsh/site-functions" "$(SHARE)/fish/vendor_completions.d"
	umask 022 && "$(ULLAGE)" completions bash > "$(SHARE)/bash-completion/completions/ullage"
	umask 022 && "$(ULLAGE)" completions zsh > "$(SHARE)/zsh/site-functions/_ullage"
	umask 022 && "$(ULLAGE)" completions fish > "$(SHARE)/fish/vendor_completions.d/ullage.fish"

# The helper only where it is that of this place.
uninstall:
	rm -f "$(DESTDIR)$(PREFIX)/bin/ullage" "$(SHARE)"/man/man1/ullage*.1 "$(SHARE)/man/man1/mount.fuse.ullage.1" \
		"$(SHARE)/bash-completion/completions/ullage" "$(SHARE)/zsh/site-functions/_ullage" "$(SHARE)/fish/vendor_completions.d/ullage.fish"
	@if [ "$$(readlink "$(HELPER)")" = "$(PREFIX)/bin/ullage" ]; then rm -f "$(HELPER)"; fi

# What the tests need beyond Rust, by name; without root what is missing is skipped and said. /dev/fuse is for every user, as udev has it:
# machines without udev may give it to root alone.
tools:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		missing=$$(for p in $(APT_TESTS); do dpkg -s $$p >/dev/null 2>&1 || echo $$p; done); \
		if [ -n "$$missing" ]; then \
			apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
		fi; \
		if [ -c /dev/fuse ]; then chmod a+rw /dev/fuse; fi; \
		grep -qw btrfs /proc/filesystems || modprobe btrfs 2>/dev/null \
			|| echo "no btrfs in this kernel ($$(uname -r)): its tests are skipped"; \
		if [ ! -d target/vm/boot ]; then \
			kernel=$$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9][^ ]*\)$$/\1/p' | head -n 1); \
			mkdir -p target/vm && (cd target/vm && apt-get download -qq $$kernel 2>/dev/null && dpkg -x linux-image-*.deb . && rm -f linux-image-*.deb) \
				|| echo "no kernel could be fetched: the tests in a virtual machine are skipped"; \
		fi; \
	else echo "not root: tests that need packages, mounts or other users are skipped"; fi

# A small kernel with the idle-page bitmap, which Debian's have not, from Debian's source: a quarter of an hour, once. With it, `make test`
# runs that sampler in a virtual machine too.
idle-kernel:
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq linux-source-6.12 bc flex bison libelf-dev cpio kmod >/dev/null
	crates/cli/tests/vm/idle-kernel.sh target/vm-idle

# A kernel with FUSE over io_uring for the virtual machine, from Debian's next release's backports: with it, `make test` takes CPUs away
# below a mount over io_uring too.
new-kernel:
	crates/cli/tests/vm/new-kernel.sh target/vm-new

# Generated tests do the same every time; SEED=… makes them look elsewhere. One command builds all, the program too: on its own it would
# be built with other features of the same libraries, and these twice. Examples are built by `make lint`; the documentation has none that run.
# Most tests wait more than they compute: one more at a time than CPUs.
SEED ?= 1
THREADS ?= $(shell echo $$(($$(nproc) + 1)))
test: tools
	cargo fmt --all --check
	ULLAGE_BIN="$(TARGET)/debug/ullage" PROPTEST_RNG_SEED=$(SEED) RUST_TEST_THREADS=$(THREADS) cargo test --workspace --tests --no-fail-fast

# The tests of mounts on a machine that stands still for up to so many milliseconds again and again.
STALL ?= 130
ONLY ?=
PACKAGES ?= -p ullage-mount-tests --test all
stalls: tools
	cargo build -p ullage-cli -p ullage-mount-tests --bins
	ULLAGE_BIN="$(TARGET)/debug/ullage" RUST_TEST_THREADS=$(THREADS) "$(TARGET)/debug/stalls" --longest $(STALL) \
		cargo test $(PACKAGES) -- $(ONLY)

# What takes longer (about two hours): lint, every decoder fuzzed, hundreds of kills and power cuts, generated tests that look where
# nobody looked before, the big runs of vouchers, and what a write costs in a fence where there is the kernel of `new-kernel`.
FUZZ_SECONDS ?= 60
CASES ?= 5000
CAMPAIGN := cargo run --release -p ullage-mount-tests --bin crash-campaign --
FAULTS := cargo run --release -p ullage-mount-tests --bin fault-campaign --
long: tools lint fuzz
	cargo build --release -p ullage-cli
	cargo build --release -p ullage-mount-tests --bins
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --rounds 200
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --rounds 50 --no-passthrough
	cargo build --release -p ullage-cli --features flawed --target-dir "$(TARGET)/flawed"
	ULLAGE_BIN="$(TARGET)/flawed/release/ullage" $(CAMPAIGN) --canary --rounds 20
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --power --rounds 100
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --drain --rounds 30
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --power --drain --rounds 24 --apart-ms 300
	ULLAGE_BIN="$(TARGET)/release/ullage" $(CAMPAIGN) --power --caches --rounds 40
	ULLAGE_BIN="$(TARGET)/flawed/release/ullage" $(FAULTS) --canary --call openat
	ULLAGE_BIN="$(TARGET)/release/ullage" $(FAULTS)
	ULLAGE_BIN="$(TARGET)/release/ullage" $(FAULTS) --size 1500M --layout mirror
	PROPTEST_CASES=$(CASES) cargo test --workspace --exclude ullage-mount-tests --exclude ullage-cli
	ULLAGE_FULL=1 cargo test -p ullage-cli --test it -- --nocapture crash:: faults::
	ULLAGE_VM_WORDS="TESTS=what_writing_costs MORE=--ignored" cargo test -p ullage-mount-tests --test all vm:: -- --nocapture
	"$(ULLAGE)" simulate --faults --seeds 2000

# Needs a nightly toolchain and `cargo install cargo-fuzz`.
fuzz:
	fuzz/run.sh $(FUZZ_SECONDS)

lint:
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

bench: $(HAVE)
	"$(ULLAGE)" bench
