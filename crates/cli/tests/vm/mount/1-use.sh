# A space on this kernel: made, used by two users, its daemon killed under a writer, found again as it was promised.
space=/tmp/space
mkdir /tmp/pool $space
up="ullage up $space --state /tmp/state"
echo "@@kernel $(uname -r)"
echo "@@up $($up --pool main=/tmp/pool $UP 2>&1 && echo done)"
echo "@@status $(ullage status $space --json | tr -d '\n')"
user="setpriv.real --reuid 1000 --regid 1000 --clear-groups"
cd $space

mkdir -m 700 users; chown 1000:1000 users
cp -a /bin programs
dd if=/dev/urandom of=data bs=64k count=64 2> /dev/null
cp data copy; cat data >> copy; truncate -s 4194304 copy
ln data link; ln -s data symbolic; mkfifo fifo; mknod null c 1 3; mv copy moved
echo "@@same $(cmp data moved && cmp link symbolic && diff -r /bin programs && echo yes)"
echo "@@kinds $(stat -c %F fifo null symbolic programs data | tr '\n' ',')"
echo "@@links $(stat -c %h data)"
echo "@@runs $(programs/busybox echo from the mount)"
echo "@@refused $($user sh -c 'echo x > theirs' 2>&1)"
echo "@@allowed $($user sh -c 'echo mine > users/own && cat users/own' 2>&1)"
mkdir small
ullage limit small 1M
echo "@@refused-space $(dd if=/dev/zero of=small/f bs=64k count=32 2>&1 | grep -o 'No space left on device')"
echo "@@small-kib $(du -s small | cut -f 1)"
sync
rm link

(cd users; while echo line; do :; done > growing) 2> /dev/null &
writer=$!
sleep 1
cd /
kill -9 $(ullage status $space --json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | head -n 1)
sleep 1
kill $writer
echo "@@again $($up $UP 2>&1 && echo done)"
echo "@@kept $(cmp $space/data $space/moved && ls $space | tr '\n' ' ')"
ullage down $space
echo "@@check $(ullage check $space > /tmp/checked 2>&1 && echo clean || tr '\n' ' ' < /tmp/checked)"
$up $UP
