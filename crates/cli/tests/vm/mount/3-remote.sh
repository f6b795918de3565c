# A pool on a server's file system: NFS, of this machine itself.
server=/tmp/server space=/tmp/remote
mkdir $server.mnt $space
mount -t nfs4 -o addr=127.0.0.1,clientaddr=127.0.0.1,vers=4.2,sec=sys 127.0.0.1:/ $server.mnt
up="timeout 60 ullage up $space --state /tmp/remote.state"
echo "@@remote-up $($up --pool main=$server.mnt/pool $UP 2>&1 && echo done)"
echo "@@remote $(ullage status $space | grep -o 'over nfs: .*')"
chmod 777 $space
user="timeout 60 setpriv.real --reuid 1000 --regid 1000 --clear-groups"
cp /bin/busybox $space/busybox
echo "@@remote-user $($user sh -c "cp /bin/busybox $space/own && sync && cmp /bin/busybox $space/own && $space/busybox echo runs" 2>&1)"
echo "@@remote-locked $(timeout 60 ullage up /tmp/other --state /tmp/other.state --pool main=$server.mnt/pool $UP 2>&1)"
ullage limit $space --user 1000 8M > /dev/null
echo "@@remote-refused $($user dd if=/dev/zero of=$space/more bs=64k count=256 2>&1 | grep -o 'quota exceeded')"
echo "@@remote-down $(timeout 60 ullage down $space && timeout 60 ullage check $space --state /tmp/remote.state > /dev/null && echo done)"
echo "@@remote-again $($up $UP > /dev/null 2>&1 && cmp /bin/busybox $space/own && timeout 60 ullage down $space && echo done)"
umount $server.mnt
