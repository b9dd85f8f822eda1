#!/bin/sh
# Makes the file system of one machine and becomes its systemd. Runs in namespaces of its own, which
# are gone with it: of mounts, processes, host name, IPC, network and cgroups.
#   boot.sh FOLDER PYTHON PACKAGES SOURCES
# The system is this one behind an overlay in memory, so nothing that the machine does is kept.
set -eu
folder=$1 python=$2 packages=$3 sources=$4
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
root=$folder/root
# As systemd's container interface asks: what belongs to the kernel of all is only to be read.
mount -t proc proc "$root/proc"
mount --bind -o ro "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup" 2>/dev/null || true
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/shm" "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"

# Nothing of this machine's own services: an empty boot.
rm -rf "$root"/etc/systemd/system/* "$root/var/log/journal"
for target in sysinit basic sockets timers paths network-online time-sync; do
    printf '[Unit]\nDescription=empty\nDefaultDependencies=no\n' \
        > "$root/etc/systemd/system/$target.target"
done
printf '[Unit]\nDescription=the test\nWants=systemd-journald.service\n' \
    > "$root/etc/systemd/system/test.target"

# In place of a wheel in a virtual environment: the sources, where the user of the unit can read them.
mkdir -p "$root/opt/beanpole/bin"
for part in python packages sources; do
    mkdir "$root/opt/beanpole/$part"
    eval "mount --bind \"\$$part\" \"$root/opt/beanpole/$part\""
done
home=/opt/beanpole
launcher() {
    cat > "$root$home/bin/$1" <<END
#!/bin/sh
export LD_LIBRARY_PATH=$home/python/lib
export PYTHONPATH=$home/sources/cluster:$home/sources/node:$home/sources/pipeline:$home/packages
exec $home/python/bin/python3 -c "import sys; from $2 import main; sys.exit(main())" "\$@"
END
    chmod 755 "$root$home/bin/$1"
}
launcher beanpoled beanpoled.launch
launcher beanpole beanpoled.cli

cd "$root"
mkdir -p old
pivot_root . old
umount -l /old
mount --make-rshared /
ip link set lo up
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system \
    --unit=test.target --log-target=journal --show-status=no < /dev/null
